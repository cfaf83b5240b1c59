/// States that only keep exponents small: whatever they are, the outputs are the same.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/definition.h"

namespace forge::graph {

/// The running maxima m = max(f + m', x), of a number per head, of a step of which these are proven, for any numbers:
/// with m greater by e, each state of the step is exp(c e) times what it was, for a c of its own (m itself is greater
/// by e), and the outputs are what they were; and so they are if the states before it were so transformed, but for m.
/// Together: with which m a token's states are kept makes no difference to any output from it on, so that the sum of
/// all that passes back to m is zero, if nothing but outputs has a gradient. Source of the maximum: xLSTM's mLSTM,
/// "xLSTM: Extended Long Short-Term Memory" (Beck et al., 2024), equations 15 to 17.
std::set<std::string> stabilisers(const ir::Definition& def);

/// By value, of a chunk's program with phases derived from such a step: the maxima that are a token's value of such a
/// state. Empty if something else reads the state.
std::vector<bool> stabilising_maxima(const ir::Function& program, const std::set<std::string>& states);

}  // namespace forge::graph
