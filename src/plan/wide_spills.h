/// What passes between kernels for matrix units with all of its 32 bits.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/place.h"

namespace forge::plan {

/// Spills for which an image of 16 bits would be too coarse: what decays multiply in a kernel that is cut from another,
/// where it had 32; decays of scans over tokens; and, of a backward pass, numbers whose maximum is compared with that
/// of another kernel.
std::set<std::string> wide_spills(const std::vector<KernelGraph>& kernels, bool backwards);

}  // namespace forge::plan
