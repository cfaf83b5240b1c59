/// What a function says of the sizes that its symbols will have.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/function.h"

namespace forge::ir {

/// The least size of every symbol with which its slices and elements at fixed places lie within its axes, and an op
/// that needs it. Not of the tokens.
struct LeastSize {
    std::int64_t size = 1;
    ValueId needed_by = kNoValue;
};
std::map<std::string, LeastSize> least_sizes(const Function& fn);

/// The function with every `size` a number. Throws CompileError if a symbol is smaller than its least size.
Function with_bound_sizes(const Function& fn, const std::map<std::string, std::int64_t>& sizes);

}  // namespace forge::ir
