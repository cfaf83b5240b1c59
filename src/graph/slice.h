/// Recurrence slicing: what of a ChunkProgram must run in order. The marks decide what may run ahead, on which worker,
/// in which kernel.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::graph {

enum class Slice : std::uint8_t {
    StateFree,   ///< needs no state: can run for all chunks at once
    StateBound,  ///< on the path from carried state to carried state: the only sequential work
    OutputOnly,  ///< needs a state, but no carried state needs it
};
const char* to_string(Slice slice);

/// One mark per value.
std::vector<Slice> slices(const ir::Function& program);

/// Values cheap enough to compute again rather than store: elementwise ops, views, sums and scans of inputs.
std::vector<bool> cheap(const ir::Function& program);

/// Symbols along which every op works in parallel, so that a kernel may take a part of the axis at a time (the value
/// axis of a matrix state, the channels of a vector state). In order of preference; empty if there is none.
/// Results that lack such an axis every part would yield, the same: there are none, unless `all` says that there may
/// be.
enum class Whole : std::uint8_t { All, Some };
/// With Sums::Ahead, what needs no states and lacks the axis may sum over it: a kernel ahead makes it, of the whole.
enum class Sums : std::uint8_t { Nowhere, Ahead };
std::vector<std::string> parallel_axes(const ir::Function& program, Whole whole = Whole::All,
                                       Sums sums = Sums::Nowhere);

bool has_axis(const ir::Type& type, const std::string& axis);

/// Whether an operation treats an axis as a batch: no contraction, reduction, reordering or position along it.
bool is_parallel(const ir::Function& fn, const ir::Op& op, const std::string& axis);
/// Whether all of them do, but for sums that are made ahead.
bool is_parallel(const ir::Function& fn, const std::string& axis, Sums sums = Sums::Nowhere);

/// The same of what carries states from chunk to chunk alone; of a backward pass but for sums.
std::vector<std::string> scan_axes(const ir::Function& program, Whole whole = Whole::All, Sums sums = Sums::Nowhere);

/// The states to which every chunk adds something, and which nothing else reads.
std::set<std::string> summed_states(const ir::Function& program);
/// The program without these states, but with what a chunk adds to each as a result (Role::Chunk).
ir::Function with_contributions(const ir::Function& program);

}  // namespace forge::graph
