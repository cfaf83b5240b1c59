/// Random well-typed functions: a list of numbers, which RapidCheck draws and shrinks, becomes one op per number.
/// Values keep a bound on their size, so that every result is finite and can be compared.
#pragma once

#include <cstdint>
#include <vector>

#include "interp/interp.h"
#include "ir/function.h"

namespace forge::tests {

struct RandomFunction {
    ir::Function fn;
    std::vector<double> bounds;  ///< |value| at most, per value, for arguments in [-1, 1]
};

RandomFunction random_function(const std::vector<std::uint32_t>& choices);
/// Sizes and arguments in [-1, 1] for the function's parameters.
interp::Sizes property_sizes();
interp::Bindings random_arguments(const ir::Function& fn, std::uint64_t seed);

}  // namespace forge::tests
