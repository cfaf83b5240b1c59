/// Scans of numbers and vectors alone, as normalisers and stabilisers are: threads hold two neighbours each of every
/// vector, in registers, and need no other thread's.
#pragma once

#include <optional>

#include "tile/lower.h"

namespace forge::tile {

/// Whether a lowered type is one number.
bool is_one_number(const ir::Type& type);

/// A kernel that goes through chunks in order, if it does so element by element; else nothing.
std::optional<TileKernel> as_vector_scan(const ir::Function& kernel, const Sizes& sizes);

}  // namespace forge::tile
