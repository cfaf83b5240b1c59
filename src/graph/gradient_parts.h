/// The parts of a gradient, one from each use of the value, and their sum.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::graph {

/// Adds to `out` the sum of the gradients that the uses of `v`, a value of `program`, give it. Running sums over the
/// tokens become one: Σ_{j<i} x_j = Σ_j x_j - Σ_{j>=i} x_j. Of a gate that is in exponents only, a log decay of -inf
/// has the gradient 0, whatever rounding leaves of the sums.
ir::ValueId summed_parts(ir::Function& out, const ir::Function& program, ir::ValueId v,
                         const std::vector<ir::ValueId>& parts);

}  // namespace forge::graph
