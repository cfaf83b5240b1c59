/// The words of the text form, which printing and parsing share; in the order of the enumerations.
#pragma once

#include <array>

namespace forge::kernel {

inline constexpr std::array<const char*, 2> kSide = {"filled", "empty"};
inline constexpr std::array<const char*, 3> kBy = {"all", "warp", "last_warp"};
inline constexpr std::array<const char*, 3> kWhen = {"always", "hardware", "threads"};

}  // namespace forge::kernel
