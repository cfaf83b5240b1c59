/// A ChunkProgram as the work of one token: the program of chunks of one token, with the chunk axis gone. Scans and
/// sums along the chunk become their only element, products over its tokens those of two numbers, since the carried
/// states do their work. Holds for programs in which a chunk of any size stands for its tokens: those with a `step`,
/// and others of which interp/semantics finds it.
#pragma once

#include <string>

#include "ir/function.h"

namespace forge::graph {

/// The axis of channels of a program whose states are numbers: its heads.
inline const std::string kHeadChannels = "heads";

/// For programs over vectors [D] of one symbol, or over numbers per head: every value of the result is a scalar or a
/// vector of channels, every op is elementwise or reduces the channels to a scalar, states and outputs are vectors.
/// Refused if the program is none of these: if it has other axes, or a state that no map carries (see channel_maps.h).
ir::Function token_program(const ir::Function& program);

/// Refuses a program of one token with a state that has no map.
void check_maps(const ir::Function& token);

/// Whether the channels of a token meet: it reduces them.
bool mixes_channels(const ir::Function& token);

}  // namespace forge::graph
