/// What an element type costs a program by itself: the program of a chunk in float64, exact but for the operands of
/// products of matrices, which are rounded to the type as matrix units take them: in gradients of float32 inputs to two
/// parts of bf16. A kernel that multiplies such operands once is about as accurate, however well it is made; where
/// these errors are beyond the tolerance, terms cancel, and the program needs float32.
#pragma once

#include <string>

#include "check/check.h"

namespace forge::check {

/// The differences of such results, in the order of compare's. `entry`: forward, or backward; `chunk`: of the kernels.
Report with_rounded_operands(const Buffers& buffers, const ir::Definition& declared, const std::string& entry,
                             std::int64_t chunk, const Reference& reference);

}  // namespace forge::check
