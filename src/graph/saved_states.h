/// States that a program reads as they were before the chunk (Role::Before) and makes anew (Role::After), while others
/// are carried from the end of the sequence to its beginning: the form of a backward pass. Such a program stands for
/// two: one that makes the states, from the first chunk to the last, and stores those before every chunk, and one that
/// goes back and reads them.
#pragma once

#include "ir/function.h"

namespace forge::graph {

/// The name under which a state before each chunk is passed from the one to the other.
std::string saved_spill(const std::string& state);

bool has_saved_states(const ir::Function& program);

/// The states that go forwards: parameters and results with role State, and those before the chunk that the rest reads
/// as results with role Spill.
ir::Function states_forwards(const ir::Function& program);

/// All the rest, which goes backwards: states before the chunk are parameters with role Spill.
ir::Function rest_backwards(const ir::Function& program);

}  // namespace forge::graph
