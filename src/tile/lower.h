/// From a kernel's graph to its tiles: symbols become sizes, every value gets a layout (computed where it is used, or
/// held in a buffer), ops are ordered so that states may be updated in place, and buffers are shared between values
/// whose lifetimes do not overlap. The result is the same kind of function, with `Op::layout` filled in.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "ir/pass.h"
#include "tile/roles.h"
#include "tile/stream.h"

namespace forge::tile {

using Sizes = std::map<std::string, std::int64_t>;

/// What a back end asks of tiles; a number alone is a vector width.
struct Rules {
    std::int64_t vector_width = 16;  ///< floats per vector; rows are padded to it
    /// Tiles lie in a GPU's shared memory: matrix rows are an odd number of vectors apart, so that neighbouring rows
    /// fall into different banks; spills are loaded into tiles; products read their second operand with any strides;
    /// what device functions need for themselves comes out of the arena too.
    bool shared_memory = false;
    std::int64_t shared_floats = 0;  ///< how many there are; tiles that are too many lie in global memory. 0: no limit
    int holding_threads = 0;         ///< of a block, which hold matrices of states in registers (tile/held.h); 0: none

    Rules(std::int64_t width, bool shared = false, std::int64_t floats = 0)
        : vector_width(width), shared_memory(shared), shared_floats(floats) {}  // NOLINT(google-explicit-constructor)
};

/// Of a Hopper GPU.
inline constexpr std::int64_t kProcessorBytes = std::int64_t{228} * 1024;

struct TileKernel {
    ir::Function fn;
    std::int64_t scratch_floats = 0;
    std::int64_t far_floats = 0;               ///< of global memory, for tiles with offsets from scratch_floats on
    std::map<ir::ValueId, std::int64_t> work;  ///< shared memory: where an op's device function has memory of its own
    std::vector<Stream> streams = {};  ///< row loops; not in shared memory, where each op is shared out over threads
    // Where chunks overlap: what arrives from global memory for one. Matrices at `stage * stage_floats`; numbers, whose
    // offsets begin at stage_floats, at `stage_numbers + stage * number_floats`.
    std::int64_t stage_floats = 0, number_floats = 0, stage_numbers = 0;
    int stages = 1;
    // For warp groups.
    std::vector<ir::ValueId> vectors = {};  ///< of tokens and what follows from them alone, made ahead by one warp
    std::optional<Roles> roles = {};        ///< of several that share a task
    std::set<ir::ValueId> summed = {};      ///< decays that find the sums of their gates where others left them
    std::set<ir::ValueId> joined = {};      ///< elementwise operations that stand in the loop of the one before
    std::int64_t processor_bytes = kProcessorBytes;  ///< of shared memory, what a multiprocessor's tasks have together
    bool by_element = false;                         ///< threads hold all values (tile/vector_scan.h)
    std::int64_t addresses = -1;  ///< of tasks of a chunk: where those of token tensors lie; -1: in registers
    std::int64_t boxes = -1, arrivals = -1;  ///< … where tensor copies begin, and the barriers of their inputs' groups
    int arriving_groups = 0;
    std::string not_held = {};  ///< why threads do not hold all matrices of states, if they should
};

/// `sizes`: of this kernel's part of the work; `whole`: of all of it, which spills are laid out for.
TileKernel lower(const ir::Function& kernel, const Sizes& sizes, const Sizes& whole, const Rules& rules,
                 const ir::PassRunner& passes = {});

/// What a lowered kernel's function does not show: floats of memory, row loops, roles.
std::string notes_of(const TileKernel& kernel);

/// The type with every symbol replaced by its size.
ir::Type with_sizes(ir::Type type, const Sizes& sizes);

/// The op whose buffer a value lies in: itself, or the base of a view.
ir::ValueId buffer_of(const ir::Function& fn, ir::ValueId v);
/// Whether two values begin at the same place.
bool same_buffer(const ir::Function& fn, ir::ValueId a, ir::ValueId b);
/// Of a product that is added to something: the matrix, which it may have to scale first.
ir::ValueId base_of(const ir::Function& fn, const ir::Op& product);
/// Which operand of a multiplication is a matrix that is kept, the other being one kept number, or one per row; -1:
/// neither.
int scaled_operand(const ir::Function& fn, const ir::Op& mul);
/// The buffers that evaluating v reads, through values that are computed in place.
std::vector<ir::ValueId> tiles_read_by(const ir::Function& fn, ir::ValueId v);

std::int64_t size_of(const ir::Type& type, int axis);  ///< of a lowered type: all dimensions are constants
/// Floats that a fresh row-major tile of this type takes, and its strides, with rows padded by the rules.
std::int64_t tile_floats(const ir::Type& type, const Rules& rules);
std::vector<std::int64_t> tile_strides(const ir::Type& type, const Rules& rules);
/// Floats of memory of its own that an op's device function needs in shared memory.
std::int64_t work_floats(const ir::Function& fn, ir::ValueId v, const Rules& rules);

}  // namespace forge::tile
