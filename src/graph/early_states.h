/// States that can be carried before all else: those whose updates read only one another, as normalisers, running
/// maxima and counts do beside the matrices of keys by values that a program is about. A scan of its own leaves them as
/// they are before every chunk, and to all that follows they are values like any others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::graph {

/// As many of the states as a scan without the others can carry.
std::set<std::string> early_states(const ir::Function& program, std::set<std::string> of);

/// The same in groups, of which each needs none but those before it: where what a group adds to its states is matrices
/// of tokens that need a group before it, these can be made for all chunks at once between the two scans.
std::vector<std::set<std::string>> early_groups(const ir::Function& program, const std::set<std::string>& early);

/// Whether matrices of tokens are made of these states for the scans of others, which would each make them in order,
/// chunk by chunk.
bool add_matrices_to_others(const ir::Function& program, const std::set<std::string>& early);

/// What is left of the program for the other states: these are spills. Values keep their places.
ir::Function without_early_states(const ir::Function& program, const std::set<std::string>& early);

}  // namespace forge::graph
