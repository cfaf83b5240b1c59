/// The one tolerance table: how far a result may be from the float64 recurrence, as the root mean square of the error
/// over the root mean square of the reference, per element type of the inputs. Loosening an entry needs a reason in the
/// commit.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "forge/types.h"

namespace forge::check {

constexpr double tolerance(DType dtype) {
    switch (dtype) {
        case DType::F32:
            return 1e-5;
        case DType::BF16:
            return 8e-3;
        case DType::F16:
            return 1.5e-3;
        case DType::F64:
            return 1e-12;
        case DType::Bool:
        case DType::I32:
        case DType::I64:
            break;
    }
    throw std::invalid_argument("no tolerance for an element type that is not a floating-point type");
}

/// Of calls whose states lie in memory in numbers of another type, which rounds them.
constexpr double tolerance(DType dtype, DType states) { return std::max(tolerance(dtype), tolerance(states)); }

/// Of gradients, which pass through every operation twice.
constexpr double gradient_tolerance(DType dtype) {
    switch (dtype) {
        case DType::F32:
            return 1e-4;
        case DType::BF16:
            return 2e-2;
        case DType::F16:
            return 4e-3;
        case DType::F64:
        case DType::Bool:
        case DType::I32:
        case DType::I64:
            break;
    }
    throw std::invalid_argument("no tolerance for the gradients of such an element type");
}

}  // namespace forge::check
