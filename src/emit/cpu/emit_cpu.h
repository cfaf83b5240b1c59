/// C++ for the CPU: one source file per plan, one function per kernel. One tile op is one line (a call of the device
/// library) or one loop nest; the text is the same from run to run and carries the schedule and the IR as a comment.
/// A kernel is `void symbol(const forge::device::Call&, forge::device::Size task, float* scratch)`; see kernel_symbol.
#pragma once

#include "emit/source.h"

namespace forge::emit {

std::string emit_cpu(const plan::Plan& plan);

}  // namespace forge::emit
