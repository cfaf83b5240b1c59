/// The kernels of programs of vector states, as programs of one token (token_program.h) with the maps of their states
/// (channel_maps.h).
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"
#include "ir/pass.h"

namespace forge::graph {

/// One kernel, or of a backward pass the way there (saved_states.h); the way back, which makes the states that it reads
/// anew from those before some tokens (Role::Before, Role::After), and what each token adds to states that are sums
/// (Role::Chunk); and these sums, from what has been added up so far (sum_spill).
struct TokenKernel {
    std::string name;      ///< "before", "scan", "sums"
    ir::Function chunk;    ///< what it does to a chunk
    ir::Function token;    ///< … and to a token
    bool reverse = false;  ///< from the last token to the first
};
/// `passes`: who is told of each.
std::vector<TokenKernel> token_kernels(const ir::Function& program, const ir::PassRunner* passes = nullptr);

/// Whether it is the kernel of sums, which goes through no tokens.
bool adds_up(const ir::Function& token);

/// The name under which parts of a sum pass from kernel to kernel.
std::string sum_spill(const std::string& state);

}  // namespace forge::graph
