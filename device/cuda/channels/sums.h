/// What a token's channels make together: those of a strip's threads, where a tile has all of a head.
#pragma once

#include "../portable/math.h"
#include "tile.h"

namespace forge::cuda {

static_assert(kStripLanes <= kLanes && kLanes % kStripLanes == 0, "the lanes of a strip are those of one warp");

/// Of this thread's channels and those of the strip's other threads, the same for all. Channels that are not there have
/// no part in it. All threads call it.
template <class F>
FORGE_DEVICE vec join_channels(const vec& x, const Part& part, float none, F join) {
    float all = none;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) all = join(all, i < part.channels ? x.x[i] : none);
#pragma unroll
    for (int n = 1; n < kStripLanes; n *= 2) all = join(all, __shfl_xor_sync(kAllLanes, all, n));
    return broadcast(all);
}

FORGE_DEVICE vec sum_channels(const vec& x, const Part& part) {
    return join_channels(x, part, 0.0f, [](float a, float b) { return a + b; });
}
FORGE_DEVICE vec amax_channels(const vec& x, const Part& part) {
    return join_channels(x, part, -__builtin_inff(), [](float a, float b) { return scalar::maximum(a, b); });
}

}  // namespace forge::cuda
