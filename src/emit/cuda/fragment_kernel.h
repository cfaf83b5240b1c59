/// Kernels of the warp-group path: inputs arrive in stages while the chunk before is computed, products run on the
/// matrix units while other work goes on, and the threads wait for either only where a result is needed.
#pragma once

#include "emit/dialect.h"
#include "emit/writer.h"
#include "plan/plan.h"

namespace forge::emit {

void write_fragment_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::emit
