#pragma once

#include <cstdint>

namespace forge::support {

/// ceil(a / b), for a >= 0 and b > 0.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace forge::support
