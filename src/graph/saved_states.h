/// States that a program reads as they were before the chunk (Role::Before) and makes anew (Role::After), while others
/// are carried from the end of the sequence to its beginning: the form of a backward pass. Such a program stands for
/// two: one that makes the states, from the first chunk to the last, and stores those before every chunk, and one that
/// goes back and reads them.
#pragma once

#include <set>
#include <string>

#include "ir/function.h"

namespace forge::graph {

bool has_saved_states(const ir::Function& program);
/// … and they are the caller's (graph::with_given_states): the program stands for the way back alone.
bool has_given_states(const ir::Function& program);

/// The states before some tokens that the way back reads, itself or to make those that it reads.
std::set<std::string> read_states(const ir::Function& program);
/// The way there: the program that makes all saved states, from the first token to the last, and leaves each of those
/// named as it was before as a Spill (saved_spill).
ir::Function way_there(const ir::Function& program, const std::set<std::string>& states);
/// The way back, without states that are made anew, but for those named.
ir::Function way_back(const ir::Function& program, const std::set<std::string>& states);
/// … which reads the Spills.
ir::Function with_spilled_states(const ir::Function& program);

/// The name under which states before some tokens pass from kernel to kernel.
std::string saved_spill(const std::string& state);

}  // namespace forge::graph
