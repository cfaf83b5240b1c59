/// Matrices of states in registers: where a kernel goes through a sequence token by token, the threads of a block hold
/// them for the whole call, a few elements each, and what is of their shape; vectors stay in shared memory. Input: a
/// legal function whose values have no layouts yet. Output: which values are held so, and why others are not.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

struct Held {
    std::vector<bool> values;  ///< one flag per value; those of one shape are held together or not at all
    std::string why_not;       ///< of the first matrix of states that is not; empty: all are
};

Held held_values(const ir::Function& fn, int threads);

/// What a thread of a block has of a matrix, in floats (device/cuda/portable/held.h); 0: it cannot be held.
std::int64_t held_floats(std::int64_t rows, std::int64_t columns, int threads);
/// … of all states that a lowered function holds.
std::int64_t held_floats(const ir::Function& fn, int threads);
/// What a thread may have of all states together: as much again is computed with, and two blocks share a
/// multiprocessor, if these are not of the most threads.
std::int64_t most_held_floats(int threads);

}  // namespace forge::tile
