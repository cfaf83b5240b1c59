/// Groups of states that scans of their own can carry: those of a group need one another, and of all others only those
/// of groups before it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::graph {

/// Of the states that are carried, but for sums (graph::summed_states), or with Role::Before of the saved ones
/// (graph/saved_states.h). A group has a matrix if any state is one: numbers, vectors and a few of these
/// join the group before them.
std::vector<std::set<std::string>> state_groups(const ir::Function& program, ir::Role role);

/// Whether there are several groups of any kind.
bool has_state_groups(const ir::Function& program);

}  // namespace forge::graph
