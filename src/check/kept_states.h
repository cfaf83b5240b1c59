/// What a forward pass leaves for the entry point "backward from states".
#pragma once

#include <map>
#include <string>

#include "check/problem.h"

namespace forge::check {

/// The states before the chunks of a forward pass with chunk_states, by name, [B, chunks, heads, …] (B = 1 of packed
/// sequences), on the inputs and initial states of a backward pass.
std::map<std::string, OwnedTensor> kept_states(const Attention& forward, const ir::Definition& def,
                                               const Buffers& given);

}  // namespace forge::check
