/// A whole source file: what the back ends write before, between and after kernels.
#pragma once

#include <functional>

#include "emit/kernel.h"

namespace forge::emit {

/// The comments before the code of a file and of a kernel: the schedule and the sizes; the kernel's IR.
void write_title(Writer& out, const plan::Plan& plan);
void write_title(Writer& out, const plan::Kernel& kernel);

/// A whole source file, before its threads wait for one another: the schedule and each kernel's IR as comments,
/// includes, kernels as `write` has them.
using WriteKernel = std::function<void(Writer&, const Dialect&, const plan::Plan&, const plan::Kernel&)>;
Source write_source(const plan::Plan& plan, const Dialect& dialect, const WriteKernel& write = write_kernel);

}  // namespace forge::emit
