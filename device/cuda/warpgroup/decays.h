/// Decays between the tokens of a chunk, one number per pair of tokens, from running sums of the log decays. For
/// operands of 16 bits: the error is that of a difference of fp32 sums, below 1e-3 of an entry. A log decay below -126
/// counts as -126, whose exponential is 0 in fp32: -inf gives 0 and no NaN.
#pragma once

#include "vectors.h"

namespace forge::cuda {

/// sums[4 + i] = (g[0] + … + g[i]) log2 e, sums[3] = 0; by one warp, from two log decays per lane.
FORGE_DEVICE void store_decay_sums(float* sums, const pair& g) {
    const pair clamped = each(g, [](float x) { return scalar::maximum(x, -126.0f) * 1.44269504f; });
    store_pair(sums + 4 + 2 * lane(), running_sum<false, false>(clamped));
    if (lane() == 0) sums[3] = 0.0f;
}

namespace detail {

template <bool EXCLUSIVE, int W>
FORGE_DEVICE Vec<W> decays_along(const float* sums, const Vec<W>& from, int row, int col) {
    const float to = sums[4 + row - EXCLUSIVE];
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = col + l + EXCLUSIVE <= row ? ptx::exp2_approximate(to - from.x[l]) : 0.0f;
    return y;
}

}  // namespace detail

/// Entries (row, col) and (row, col + 1) of decay_mask: exp of the sum of g over (col, row], EXCLUSIVE: over (col,
/// row).
template <bool EXCLUSIVE>
FORGE_DEVICE pair decays(const float* sums, int row, int col) {
    return detail::decays_along<EXCLUSIVE>(sums, load_pair(sums + 4 + col), row, col);
}

/// Entries (row, col) to (row, col + 3).
template <bool EXCLUSIVE>
FORGE_DEVICE vec decays_four(const float* sums, int row, int col) {
    return detail::decays_along<EXCLUSIVE>(sums, load(sums + 4 + col), row, col);
}

/// Entries (row, col) and (row + 1, col).
template <bool EXCLUSIVE>
FORGE_DEVICE pair decays_down(const float* sums, int row, int col) {
    const float from = sums[4 + col];
    pair y;
#pragma unroll
    for (int l = 0; l < 2; ++l)
        y.x[l] = col + EXCLUSIVE <= row + l ? ptx::exp2_approximate(sums[4 + row + l - EXCLUSIVE] - from) : 0.0f;
    return y;
}

}  // namespace forge::cuda
