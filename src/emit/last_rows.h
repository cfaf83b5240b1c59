/// The kernel that stores, after all others, what prev_token will read before the next call's first token, and states
/// in place that several tasks have read.
#pragma once

#include "emit/dialect.h"
#include "emit/writer.h"
#include "plan/plan.h"

namespace forge::emit {

/// The number of a task's sequence and head, of which late states have a block each.
inline constexpr const char* kSequenceBlock = "(at.sequence * call.heads + at.head)";

std::string last_rows_symbol(const plan::Plan& plan);
/// The tensor with what prev_token of an input tensor reads before the first token.
int rows_before(const plan::Plan& plan, int input);

/// One task per sequence and head; writes nothing if the plan has neither. `dialect` gives the kernel's arguments
/// and first lines.
void write_last_rows(Writer& out, const Dialect& dialect, const plan::Plan& plan);

}  // namespace forge::emit
