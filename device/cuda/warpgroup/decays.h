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

template <bool EXCLUSIVE, int ROWS, int COLS, int W>
FORGE_DEVICE Vec<W> decays_along(const float* sums, const Vec<W>& from, int row, int col) {
    const int last = row / ROWS;
    const float to = sums[4 + last - EXCLUSIVE];
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l)
        if (l > 0 && COLS % W == 0) y.x[l] = y.x[0];  // of one token
        else y.x[l] = (col + l) / COLS + EXCLUSIVE <= last ? ptx::exp2_approximate(to - from.x[l]) : 0.0f;
    return y;
}

/// The sums of W columns' tokens.
template <int COLS, int W>
FORGE_DEVICE Vec<W> sums_of_columns(const float* sums, int col) {
    Vec<W> from;
#pragma unroll
    for (int l = 0; l < W; ++l) from.x[l] = sums[4 + (col + l) / COLS];
    return from;
}

}  // namespace detail

/// Entries (row, col) and (row, col + 1) of decay_mask: exp of the sum of g over (col, row], EXCLUSIVE: over (col,
/// row). Of tokens that have ROWS rows and COLS columns each: all of two tokens have the same number.
template <bool EXCLUSIVE, int ROWS = 1, int COLS = 1>
FORGE_DEVICE pair decays(const float* sums, int row, int col) {
    const pair from = COLS == 1 ? load_pair(sums + 4 + col) : detail::sums_of_columns<COLS, 2>(sums, col);
    return detail::decays_along<EXCLUSIVE, ROWS, COLS>(sums, from, row, col);
}

/// Entries (row, col) to (row, col + 3).
template <bool EXCLUSIVE, int ROWS = 1, int COLS = 1>
FORGE_DEVICE vec decays_four(const float* sums, int row, int col) {
    const vec from = COLS == 1 ? load(sums + 4 + col) : detail::sums_of_columns<COLS, kWidth>(sums, col);
    return detail::decays_along<EXCLUSIVE, ROWS, COLS>(sums, from, row, col);
}

/// Entries (row, col) and (row + 1, col).
template <bool EXCLUSIVE, int ROWS = 1, int COLS = 1>
FORGE_DEVICE pair decays_down(const float* sums, int row, int col) {
    const int first = col / COLS;
    const float from = sums[4 + first];
    pair y;
#pragma unroll
    for (int l = 0; l < 2; ++l) {
        const int last = (row + l) / ROWS;
        if (l > 0 && ROWS % 2 == 0) y.x[l] = y.x[0];
        else y.x[l] = first + EXCLUSIVE <= last ? ptx::exp2_approximate(sums[4 + last - EXCLUSIVE] - from) : 0.0f;
    }
    return y;
}

}  // namespace forge::cuda
