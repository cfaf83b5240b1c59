/// Kernels of single chunks in two, each of which makes some of the results: what both need both make, and each holds
/// less at a time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/place.h"

namespace forge::plan {

/// The same kernels, those named as two of which each may be named too: NAME_first and NAME_second. One with a single
/// result stays whole.
std::vector<KernelGraph> with_halves(std::vector<KernelGraph> kernels, const std::set<std::string>& names);

}  // namespace forge::plan
