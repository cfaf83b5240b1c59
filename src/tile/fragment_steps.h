/// The steps of lowering to fragments, one file each, in their order: every value gets a form, with copies between
/// forms; operations get an order; tiles and operands get memory. Each may refuse (support/reasons.h).
#pragma once

#include <set>

#include "support/reasons.h"
#include "tile/far.h"
#include "tile/fragments.h"
#include "tile/lower.h"

namespace forge::tile {

/// How tiles beside fragments are laid out and computed.
inline const Rules kFragmentRules{4, true};

inline bool is_fragment(ir::Layout::Space space) {
    return space == ir::Layout::Space::Fragment || space == ir::Layout::Space::Transposed;
}
inline bool in_memory(ir::Layout::Space space) {
    return space == ir::Layout::Space::Tile || space == ir::Layout::Space::Operand;
}

/// Every value in its form (`Layout::space`, `parts`), and a copy wherever one is wanted in another. `symbolic` is the
/// same function as `fn` before its types became sizes.
ir::Function in_forms(const ir::Function& symbolic, const ir::Function& fn, const FragmentRules& rules);

/// An order that keeps the matrix units busy while the threads do other work, for chunks that follow one another.
/// `alone`: no other task shares the multiprocessor. `roles`: of the warp groups that share the task; null: there is
/// one.
ir::Function overlapped(const ir::Function& fn, bool alone, const Roles* roles, bool stores_first = false);
/// The same operations in an order in which groups that share a block of tiles need fewer registers.
ir::Function with_few_registers(const ir::Function& fn, const Roles& roles);
/// … of tiles that have nothing in common: what reads a state comes before the next one, which may then have its
/// registers.
ir::Function with_states_read_first(const ir::Function& fn);
/// An order that needs little shared memory, for tasks of a single chunk: as many of them run on a multiprocessor at a
/// time, they hide each other's latencies.
ir::Function thrifty(const ir::Function& fn);
/// An order that needs few registers, for tasks of a single chunk with so many inputs that shared memory is theirs.
/// Of split kernels, which have many small matrices, the order matters more, and takes longer to find.
ir::Function frugal(const ir::Function& fn, const FragmentRules& rules);
/// The same operations with the loads of inputs where there is room for them, some of them more than once: if two tasks
/// then fit on a multiprocessor, or, of split matrices, one.
struct Arrived {
    ir::Function fn;
    int tasks;           ///< that fit into a multiprocessor's shared memory, but for gaps between matrices: 2, 1 or 0
    std::int64_t again;  ///< floats of inputs that are loaded more than once, each time but the first
};
Arrived with_arrivals(ir::Function fn, const FragmentRules& rules);
/// The same, of chunks that follow one another, with the loads of matrices of several blocks as a chunk begins, of all
/// but the one that is read first, or of `all`: such are there for one chunk at a time.
ir::Function with_wide_inputs_late(const ir::Function& fn, bool all);

/// The same operations with elementwise loops over memory that have the rows, the columns and something that they read
/// in common one after the other: `values` are those that stand in the loop of the operation before. What nothing else
/// reads stays in registers. `Moved`: what may pass other operations for that: nothing, loops, or the arrival of
/// inputs, too.
enum class Moved : std::uint8_t { Nothing, Loops, InputsToo };
struct JoinedLoops {
    ir::Function fn;
    std::set<ir::ValueId> values = {};
    bool any = false;  ///< whether any joined, be it that nothing else is stored
};
/// `fragments`: loops over these, too, that follow one another.
JoinedLoops with_joined_loops(const ir::Function& fn, Moved moved, bool fragments);

/// The tiles that may lie in global memory: those that loops and functions of the portable library alone read and
/// write.
std::vector<Buffer> may_be_far(const ir::Function& fn);

/// Memory for tiles and operands, and which vectors one warp makes ahead. If one warp group's tiles take more than the
/// rules' shared_floats (0: no limit), those that are read least lie in global memory.
TileKernel with_memory(const JoinedLoops& loops, const std::optional<Roles>& roles, const FragmentRules& rules);

}  // namespace forge::tile
