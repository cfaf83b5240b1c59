/// Kernels of warp groups' plans that carry a state through segments by matrices that act on its columns
/// (device/cuda/warpgroup/carries.h): transitions arrive by copies, ahead of the products that read them.
#pragma once

#include "emit/dialect.h"
#include "emit/writer.h"
#include "plan/plan.h"

namespace forge::emit {

/// Whether a kernel is such a one: it carries one state, whose transitions are whole matrices of which two fit shared
/// memory beside it. All others are written as any kernel of tiles is (emit/kernel.h).
bool carries_columns(const plan::Plan& plan, const plan::Kernel& kernel);

/// The shared memory of such a kernel, in floats.
std::int64_t carry_floats(const plan::Plan& plan, const plan::Kernel& kernel);

void write_carries(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::emit
