/// One kernel as C++: its task, loads, tile ops in order, stores.
#pragma once

#include "emit/cpu/writer.h"
#include "plan/plan.h"

namespace forge::emit {

void write_kernel(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel);

/// One tile op that is neither a parameter, a view nor elementwise: a call of the device library.
void write_device_call(Writer& out, const ir::Function& fn, ir::ValueId v, const std::vector<std::string>& names);

}  // namespace forge::emit
