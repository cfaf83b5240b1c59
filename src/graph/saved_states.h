/// States that a program reads as they were before the chunk (Role::Before) and makes anew (Role::After), while others
/// are carried from the end of the sequence to its beginning: the form of a backward pass. Such a program stands for
/// two: one that makes the states, from the first chunk to the last, and stores those before every chunk, and one that
/// goes back and reads them.
#pragma once

#include "ir/function.h"

namespace forge::graph {

bool has_saved_states(const ir::Function& program);
/// … and they are the caller's (graph::with_given_states): the program stands for the way back alone.
bool has_given_states(const ir::Function& program);

}  // namespace forge::graph
