/// A ChunkProgram whose tokens meet only along scans, as the work of one token: the program of chunks of one token,
/// with the chunk axis gone. Scans and sums along the chunk become their only element, since the carried states do
/// their work. Holds for programs in which a chunk of any size stands for its tokens, which is what a `step` in the
/// definition says.
#pragma once

#include "ir/function.h"

namespace forge::graph {

/// For programs over vectors [D] of one symbol: every value of the result is a scalar or a [D], every op is
/// elementwise, states and outputs are [D]. Refused if the program is none of these: if it has products, reductions
/// over D, other axes, or a state that the summaries of segments cannot carry (see transition.h).
ir::Function token_program(const ir::Function& program);

}  // namespace forge::graph
