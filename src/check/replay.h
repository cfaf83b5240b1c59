/// The kernels of a plan in the interpreter, in float64, on any level from `place` on: chunk by chunk, segment by
/// segment and tile by tile as the launches would, what passes between kernels by its name. Layouts are not looked at.
#pragma once

#include "interp/recurrence.h"
#include "plan/plan.h"

namespace forge::check {

/// One kernel as a pass has left it.
struct ReplayKernel {
    const plan::Kernel* planned = nullptr;  ///< loop, tiles, and the graph as placed
    ir::Function fn;                        ///< what is run
};

/// One head's whole sequence. `plan`: of which the kernels are.
interp::Outcome replay(const plan::Plan& plan, const std::vector<ReplayKernel>& kernels,
                       const interp::Sequence& sequence);

}  // namespace forge::check
