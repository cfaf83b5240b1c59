/// How many chunks, segments and summaries a call has: counted where the host knows the lengths of its sequences, else
/// an upper bound.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

/// RuntimeError unless there are so few tokens and heads that blocks of them can be counted, in parts too, and so few
/// sequences that int numbers them.
void check_magnitude(const Callable& callable, const Bounds& of);

/// From the length of every sequence.
void count_blocks(const Callable& callable, Bound& bound);
/// As many as there can be, whatever the lengths of packed sequences; each has one at least.
void bound_blocks(const Callable& callable, Bound& bound);

}  // namespace forge::runtime
