/// Decays between the tokens of a chunk, one number per pair of tokens, from running sums of the log decays. For
/// operands of 16 bits the error is that of a difference of fp32 sums, below 1e-3 of an entry; for floats
/// (FORGE_FLOAT_OPERANDS) sums have another float for what rounding took from them, and the error is that of the
/// difference itself. A log decay below -126 counts as -126, whose exponential is 0 in fp32: -inf gives 0 and no NaN.
#pragma once

#include "vectors.h"

namespace forge::cuda {

#ifdef FORGE_FLOAT_OPERANDS
constexpr bool kSumsHaveRests = true;
#else
constexpr bool kSumsHaveRests = false;
#endif
constexpr int kRestsOfSums = 4 + 64;  ///< from a sum to its rest

namespace detail {

/// What rounding takes from x + y.
FORGE_DEVICE float rest_of_sum(float x, float y) {
    const float sum = x + y, of_y = sum - x;
    return (x - (sum - of_y)) + (y - of_y);
}

/// The sums up to each number, and their rests.
FORGE_DEVICE void store_sums_and_rests(float* sums, const pair& x) {
    float sum = x.x[0] + x.x[1], rest = rest_of_sum(x.x[0], x.x[1]);  // … of this lane's, and of all before it
#pragma unroll
    for (int n = 1; n < kLanes; n *= 2) {
        const float other = __shfl_up_sync(kAllLanes, sum, n), of_other = __shfl_up_sync(kAllLanes, rest, n);
        if (lane() < n) continue;
        rest += of_other + rest_of_sum(other, sum);
        sum += other;
    }
    float before = __shfl_up_sync(kAllLanes, sum, 1), of_before = __shfl_up_sync(kAllLanes, rest, 1);
    if (lane() == 0) before = of_before = 0.0f;
    store_pair(sums + 2 * lane(), {{before + x.x[0], sum}});
    store_pair(sums + kRestsOfSums + 2 * lane(), {{of_before + rest_of_sum(before, x.x[0]), rest}});
}

}  // namespace detail

/// sums[4 + i] = (g[0] + … + g[i]) log2 e, sums[3] = 0; by one warp, from two log decays per lane.
FORGE_DEVICE void store_decay_sums(float* sums, const pair& g) {
    const pair clamped = each(g, [](float x) { return scalar::maximum(x, -126.0f) * 1.44269504f; });
    if (lane() == 0) sums[3] = 0.0f;
    if constexpr (kSumsHaveRests) {
        if (lane() == 0) sums[3 + kRestsOfSums] = 0.0f;
        detail::store_sums_and_rests(sums + 4, clamped);
    } else {
        store_pair(sums + 4 + 2 * lane(), running_sum<false, false>(clamped));
    }
}

namespace detail {

/// exp2 of the sum `to` less the sum `from`; `last`, `first`: where they lie.
FORGE_DEVICE float decay_between(const float* sums, float to, float from, int last, int first) {
    float between = to - from;
    if constexpr (kSumsHaveRests) between += sums[kRestsOfSums + last] - sums[kRestsOfSums + first];
    return ptx::exp2_approximate(between);
}

template <bool EXCLUSIVE, int ROWS, int COLS, int W>
FORGE_DEVICE Vec<W> decays_along(const float* sums, const Vec<W>& from, int row, int col) {
    const int last = row / ROWS;
    const float to = sums[4 + last - EXCLUSIVE];
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l)
        if (l > 0 && COLS % W == 0) y.x[l] = y.x[0];  // of one token
        else if ((col + l) / COLS + EXCLUSIVE > last) y.x[l] = 0.0f;
        else y.x[l] = decay_between(sums, to, from.x[l], 4 + last - EXCLUSIVE, 4 + (col + l) / COLS);
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
        else if (first + EXCLUSIVE > last) y.x[l] = 0.0f;
        else y.x[l] = detail::decay_between(sums, sums[4 + last - EXCLUSIVE], from, 4 + last - EXCLUSIVE, 4 + first);
    }
    return y;
}

}  // namespace forge::cuda
