/// States of a backward pass that are carried after all others: gradients of normalisers, of earlier keys or of angles,
/// which sum over the axis that scans are cut along. No other state's update reads them, so that a scan of its own, of
/// the whole axis, can carry them when the others are known before and after every chunk.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "graph/slice.h"
#include "ir/function.h"

namespace forge::graph {

/// Those that lack the axis, but for sums (graph::summed_states), of a program with saved states. Nothing if scans
/// cannot be cut along the axis even so: other states need one of them, or mix the axis themselves.
/// Nothing either if one carries the gradient of a maximum with which other states are made, as a sum over the axis:
/// outputs do not depend on what keeps exponents small, so that all terms cancel, and what products of 16-bit numbers
/// leave of them would be summed over all later tokens.
///
/// `between`: what `made_between` names is not the scans' to make; `sums`: nor, perhaps, what needs no states.
std::optional<std::set<std::string>> trailing_states(const ir::Function& program, const std::string& axis,
                                                     bool between = false, Sums sums = Sums::Nowhere);

/// The axes along which scans can be cut if trailing states have one of their own, in order of preference.
std::vector<std::string> axes_but_for_trailing_states(const ir::Function& program, bool between = false,
                                                      Sums sums = Sums::Nowhere);

/// Values that depend on states before the chunk, but on no gradients of states, and from which no such state is made:
/// a kernel between the scan that makes these states and the one that goes back can make them for all chunks at once,
/// of the whole axis. So gradients of outputs that are normalised get through what sums over it.
std::vector<bool> made_between(const ir::Function& program);

}  // namespace forge::graph
