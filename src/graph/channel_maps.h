/// What a token does to a state, channel by channel, as a map that can be composed: h -> factor h + addend, or the
/// maximum h -> max(h + shift, addend). Programs are of one token (token_program.h).
#pragma once

#include "graph/summary.h"

namespace forge::graph {

/// Whether the state after a token is the maximum of what it was, shifted by what does not read it, and of other such
/// numbers: a running maximum.
bool is_maximum(const ir::Function& token, const std::string& state);

/// Whether a state has a map of either kind.
bool has_map(const ir::Function& token, const Transition& transition);

/// The program with what the states' maps need beside the states: parameters and results with role Ones, named like the
/// state. They carry factors, from 1, and the shifts of maxima, from 0; without them these stay as they are. Addends
/// are what states become that start from 0, or, of maxima, from -inf.
ir::Function channel_maps(const ir::Function& token);

}  // namespace forge::graph
