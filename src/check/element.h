/// One element of a tensor of any type, to and from double: round to nearest even, subnormals and infinities kept. For
/// test data and comparisons; slow, and the same on every machine.
#pragma once

#include <cstddef>

#include "forge/types.h"

namespace forge::check {

double load(const std::byte* element, DType dtype);
void store(std::byte* element, DType dtype, double value);

}  // namespace forge::check
