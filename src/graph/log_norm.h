/// How much a chunk leaves of the states before it, as a number that a program computes: the logarithm of an upper
/// bound of its transitions' norm, summed over its tokens (norm_bound.h). Over several chunks the numbers are added.
#pragma once

#include <optional>

#include "ir/definition.h"

namespace forge::graph {

/// The name of the result, a Spill of type f32[].
constexpr const char* kLogNorm = "log norm";

/// `program`, the optimised one of `def`, with the number as one more result: of the largest of its states' bounds.
/// None if a state has no bound by its step, or one that cannot be computed for all tokens of a chunk at once; nor
/// where it looks at the token before; nor where channels decay on their own: the largest of many factors is hardly
/// ever small, and costs a look at all.
std::optional<ir::Function> with_log_norm(const ir::Function& program, const ir::Definition& def);

}  // namespace forge::graph
