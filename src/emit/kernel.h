/// One kernel as C++: its task, loads, tile ops in order, stores. The skeleton that the back ends share.
#pragma once

#include "emit/context.h"

namespace forge::emit {

/// The symbol of a kernel.
std::string kernel_symbol(const plan::Kernel& kernel);

void write_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel);

/// One tile op that is neither a parameter, a view nor elementwise: a call of the device library.
void write_device_call(Context& context, ir::ValueId v);

}  // namespace forge::emit
