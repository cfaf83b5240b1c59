/// From kernels that were chosen for some calls to the comparisons that lead every call to its kernels.
#pragma once

#include "rt/manifest.h"

namespace forge::package {

/// The call that kernels were chosen for: what a table compares, in its order, and the kernels' number.
struct Cell {
    std::vector<std::int64_t> features;
    int kernels = 0;
};

/// `features`: how many there are; the last two, tokens and tasks, are compared with what lies halfway (of their
/// logarithms) between the cells' values, the others with the values. One cell at least.
rt::Table table_of(const std::vector<Cell>& cells, std::size_t features);

}  // namespace forge::package
