/// The kernel that stores what prev_token will read before the next call's first token.
#pragma once

#include "emit/dialect.h"
#include "emit/writer.h"
#include "plan/plan.h"

namespace forge::emit {

std::string last_rows_symbol(const plan::Plan& plan);
/// The tensor with what prev_token of an input tensor reads before the first token.
int rows_before(const plan::Plan& plan, int input);

/// One task per sequence and head; writes nothing if the plan has no last rows. `dialect` gives the kernel's arguments
/// and first lines.
void write_last_rows(Writer& out, const Dialect& dialect, const plan::Plan& plan);

}  // namespace forge::emit
