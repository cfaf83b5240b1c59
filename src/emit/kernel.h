/// One kernel as C++: its task, loads, tile ops in order, stores. The skeleton that the back ends share.
#pragma once

#include <functional>

#include "emit/context.h"

namespace forge::emit {

/// The symbol of a kernel.
std::string kernel_symbol(const plan::Kernel& kernel);

/// The comments before the code of a file and of a kernel: the schedule and the sizes; the kernel's IR.
void write_title(Writer& out, const plan::Plan& plan);
void write_title(Writer& out, const plan::Kernel& kernel);

void write_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel);

/// A whole source file, before its threads wait for one another: the schedule and each kernel's IR as comments, includes, kernels as `write` has them.
using WriteKernel = std::function<void(Writer&, const Dialect&, const plan::Plan&, const plan::Kernel&)>;
Source write_source(const plan::Plan& plan, const Dialect& dialect, const WriteKernel& write = write_kernel);

/// One tile op that is neither a parameter, a view nor elementwise: a call of the device library.
void write_device_call(Context& context, ir::ValueId v);

}  // namespace forge::emit
