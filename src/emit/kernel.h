/// One kernel as C++: its task, loads, tile ops in order, stores. The skeleton that the back ends share.
#pragma once

#include "emit/context.h"

namespace forge::emit {

/// The symbol of a kernel.
std::string kernel_symbol(const plan::Kernel& kernel);

void write_kernel(Writer& out, const Dialect& dialect, const plan::Plan& plan, const plan::Kernel& kernel);

// Blocks that take one task after the other: where the tiles lie that a block has in global memory, and the loop, in
// which the task's number is `task`.
void declare_far_tiles(Writer& out, const plan::Plan& plan);
void begin_tasks_in_turn(Writer& out);
void end_tasks_in_turn(Writer& out);

/// One tile op that is neither a parameter, a view nor elementwise: a call of the device library.
void write_device_call(Context& context, ir::ValueId v);

}  // namespace forge::emit
