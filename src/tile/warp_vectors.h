/// What one warp makes, two tokens per lane (device/cuda/warpgroup/vectors.h), beside the threads that work on
/// matrices.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::tile {

/// Whether one warp can make such a value in its registers, from vectors of one number per token of a chunk: what
/// emit/cuda/fragment_inputs has a text for.
bool one_warp_makes(const ir::Op& op);
/// Whether a value is a number that every thread works out for itself: of parameters and constants alone.
bool is_number_anywhere(const ir::Function& fn, ir::ValueId v);
/// Vectors of one number per token, and what follows from them alone: one warp can make them ahead, in its registers.
std::vector<ir::ValueId> vectors_alone(const ir::Function& fn);

}  // namespace forge::tile
