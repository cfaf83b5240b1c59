/// Scans of numbers and vectors alone, as normalisers and stabilisers are: threads hold two neighbours each of every
/// vector, in registers, and need no other thread's.
#pragma once

#include <optional>

#include "tile/lower.h"

namespace forge::tile {

std::int64_t numbers_of(const ir::Type& type);  ///< of a lowered type
/// Whether a chunk brings a value of such a scan: a spill, or a number of one, of which no thread then reads the
/// others.
bool arrives_with_chunk(const ir::Function& fn, ir::ValueId v);

/// A kernel that goes through chunks in order, if it does so element by element; else nothing.
std::optional<TileKernel> as_vector_scan(const ir::Function& kernel, const Sizes& sizes);

}  // namespace forge::tile
