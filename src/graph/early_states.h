/// States that can be carried before all else: those whose updates read only one another, as normalisers, running
/// maxima and counts do beside the matrices of keys by values that a program is about. A scan of its own leaves them as
/// they are before every chunk, and to all that follows they are values like any others.
#pragma once

#include <set>
#include <string>

#include "ir/function.h"

namespace forge::graph {

/// As many of the states as a scan without the others can carry.
std::set<std::string> early_states(const ir::Function& program, std::set<std::string> of);

/// What is left of the program for the other states: these are spills. Values keep their places.
ir::Function without_early_states(const ir::Function& program, const std::set<std::string>& early);

}  // namespace forge::graph
