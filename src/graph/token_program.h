/// A ChunkProgram as the work of one token: the program of chunks of one token, with the chunk axis gone. Scans and
/// sums along the chunk become their only element, products over its tokens those of two numbers, since the carried
/// states do their work. Holds for programs in which a chunk of any size stands for its tokens: those with a `step`,
/// and others of which interp/semantics finds it.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"
#include "ir/pass.h"

namespace forge::graph {

/// The axis of channels of a program whose states are numbers: its heads.
inline const std::string kHeadChannels = "heads";

/// For programs over vectors [D] of one symbol, or over numbers per head: every value of the result is a scalar or a
/// vector of channels, every op is elementwise or reduces the channels to a scalar, states and outputs are vectors.
/// Refused if the program is none of these: if it has other axes, or a state that no map carries (see channel_maps.h).
ir::Function token_program(const ir::Function& program);

/// The kernels of the program, as programs of one token with the maps of their states (channel_maps.h): one, or of a
/// backward pass the way there (saved_states.h); the way back, which makes the states that it reads anew from those
/// before some tokens (Role::Before, Role::After), and what each token adds to states that are sums (Role::Chunk); and
/// these sums, from what has been added up so far (sum_spill). `passes`: who is told of each.
struct TokenKernel {
    std::string name;      ///< "before", "scan", "sums"
    ir::Function chunk;    ///< what it does to a chunk
    ir::Function token;    ///< … and to a token
    bool reverse = false;  ///< from the last token to the first
};
std::vector<TokenKernel> token_kernels(const ir::Function& program, const ir::PassRunner* passes = nullptr);

/// The name under which parts of a sum pass from kernel to kernel.
std::string sum_spill(const std::string& state);

/// Whether the channels of a token meet: it reduces them.
bool mixes_channels(const ir::Function& token);

}  // namespace forge::graph
