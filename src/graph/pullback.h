/// The gradient rules, one per op: what the gradient of a result makes of the gradients of the operands.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::graph {

/// The gradients of the operands of `op`, of which `y` is the value in `out` and `dy` the gradient; its operands are
/// values of `out`. kNoValue for operands that have none. CompileError, with the op and its place, if there is no rule.
std::vector<ir::ValueId> pullback(ir::Function& out, const ir::Op& op, ir::ValueId y, ir::ValueId dy);

}  // namespace forge::graph
