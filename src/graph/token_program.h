/// A ChunkProgram as the work of one token: the program of chunks of one token, with the chunk axis gone. Scans and
/// sums along the chunk become their only element, products over its tokens those of two numbers, since the carried
/// states do their work. Holds for programs in which a chunk of any size stands for its tokens: those with a `step`,
/// and others of which interp/semantics finds it.
#pragma once

#include <optional>
#include <string>

#include "ir/function.h"

namespace forge::graph {

/// The axis of channels of a program whose states are numbers: its heads. No definition can call an axis so.
inline const std::string kHeadChannels = "#heads";

/// For programs over vectors [D] of one symbol, over numbers per head, or over matrices [R, D] of which every number
/// decays by itself: every op is elementwise or reduces the channels or the rows, states are vectors or matrices, and
/// none of them reads a sum over rows. Refused if the program is none of these: if it has other axes, or a state that
/// no map carries (see channel_maps.h).
ir::Function token_program(const ir::Function& program);

/// Refuses a program of one token with a state that has no map.
void check_maps(const ir::Function& token);

/// Whether the channels of a token meet: it reduces them.
bool mixes_channels(const ir::Function& token);

// What a thread has of a value of such a program: a number [], its channels [D] or, where states are matrices [R, D] of
// which every number decays by itself, a number [R, 1] or channels [R, D] of each of their rows.
inline bool has_rows(const ir::Type& type) { return type.rank() > 1; }
inline bool has_channels(const ir::Type& type) { return type.rank() > 0 && type.shape.back() != Dim(1); }
/// The axis of rows, if states have one.
std::optional<Dim> rows_of(const ir::Function& token);
/// Whether an op sums over the rows.
bool sums_rows(const ir::Function& token, const ir::Op& op);

}  // namespace forge::graph
