/// Where what is large lies in shared memory, each for a time of its own: rectangles of given lives, packed low.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/function.h"

namespace forge::tile {

/// How long something large lies in memory, from one operation to another: values one after the other, or work areas.
struct Stay {
    std::int64_t floats;
    ir::ValueId from, to;
    std::vector<ir::ValueId> values, works;
    std::int64_t offset = 0;
};

/// The floats of those that are there at once, at most: no packing takes less.
std::int64_t most_at_once(const std::vector<Stay>& stays);

/// Packs the largest first, or what stays longest, or what is most of both, each as low as its life allows. While the
/// best takes more than `enough`, and another might not, other orders are tried. Gives the stays the offsets of the
/// best packing, if that takes fewer than `floats`, and returns what is taken then; else `floats`. Changes their order.
std::int64_t packed(std::vector<Stay>& stays, std::int64_t floats, std::int64_t enough);

}  // namespace forge::tile
