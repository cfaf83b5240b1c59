/// Decays between the tokens of a chunk, entry by entry, from running sums of the log decays. For operands of 16 bits: the
/// error is that of a difference of fp32 sums, below 1e-3 of an entry. A log decay below -126 counts as -126, whose
/// exponential is 0 in fp32: -inf gives 0 and no NaN.
#pragma once

#include "../ptx/mma.h"
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

/// Entries (row, col) and (row, col + 1) of decay_mask: exp of the sum of g over (col, row], EXCLUSIVE: over (col, row).
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
    for (int l = 0; l < 2; ++l) y.x[l] = col + EXCLUSIVE <= row + l ? ptx::exp2_approximate(sums[4 + row + l - EXCLUSIVE] - from) : 0.0f;
    return y;
}

namespace detail {

constexpr int kDecayRows = 16;          ///< tokens of a block, a warp's rows
constexpr float kDecayRange = 100.0f;   ///< powers of two that a decay within a block may take for its inverse to be formed

/// One element of an operand as it stands.
template <class O>
FORGE_DEVICE float number_at(const O& o, int row, int col) {
    return to_float(o.data[O::place(row, col)]);
}

/// Entries of the block at (row0, row0), channel by channel: for decays too steep to be split.
template <bool EXCLUSIVE, int LD, class Q, class K>
FORGE_DEVICE void steep_block(const Q& q, const K& k, const float* sums, int row0, float (&x)[8]) {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        const int i = row0 + g + e / 2 % 2 * 8, j = row0 + e / 4 * 8 + 2 * t + e % 2;
        float sum = 0.0f;
        if (j + EXCLUSIVE <= i) {
#pragma unroll 4
            for (int d = 0; d < Q::kCols; ++d) {
                const float to = EXCLUSIVE && i == 0 ? 0.0f : sums[(i - EXCLUSIVE) * LD + d];
                sum += number_at(q, i, d) * number_at(k, j, d) * ptx::exp2_approximate(to - sums[j * LD + d]);
            }
        }
        x[e] = sum;
    }
}

/// The 16 rows of warp W: products of both factors' halves of the decays, for the columns up to its own.
template <int W, bool EXCLUSIVE, int LD, class Q, class K>
FORGE_DEVICE void decay_rows(const Q& q, const K& k, const float* sums, float (&sum)[8][4]) {
    constexpr int kRow0 = W * kDecayRows;
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll 1
    for (int d0 = 0; d0 < Q::kCols; d0 += 8) {
        constexpr float kRoundUp = 0.00070427f;  // log2(1 + 2^-11): the matrix units cut what rounding would round
        float anchor[2];
        unsigned a[4];
#pragma unroll
        for (int h = 0; h < 2; ++h) anchor[h] = W > 0 ? sums[(kRow0 - 1) * LD + d0 + t + 4 * h] : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = kRow0 + g + e % 2 * 8, d = d0 + t + e / 2 * 4;
            const float to = !EXCLUSIVE ? sums[i * LD + d] : i > 0 ? sums[(i - 1) * LD + d] : 0.0f;
            a[e] = __float_as_uint(number_at(q, i, d) * ptx::exp2_approximate(to - (anchor[e / 2] - kRoundUp)));
        }
#pragma unroll
        for (int n = 0; n < 2 * (W + 1); ++n) {
            unsigned b[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int j = n * 8 + g, d = d0 + t + 4 * h;
                b[h] = __float_as_uint(number_at(k, j, d) * ptx::exp2_approximate((anchor[h] + kRoundUp) - sums[j * LD + d]));
            }
            ptx::mma_m16n8k8_tf32(sum[n], a, b);
        }
    }
}

}  // namespace detail

/// Running sums of log decays [64, K] down the columns, in powers of two, for decay_product: 64 rows of LD floats.
template <int K, int LDG, int LD>
FORGE_DEVICE void decay_column_sums(const float* gates, float* sums) {
    for (int d = thread(); d < K; d += kThreads) {
        float sum = 0.0f;
#pragma unroll 16
        for (int i = 0; i < 64; ++i) {
            sum += scalar::maximum(gates[i * LDG + d], -126.0f) * 1.44269504f;
            sums[i * LD + d] = sum;
        }
    }
}

/// out[i, j] = sum over d of q[i, d] k[j, d] exp(g[j + 1, d] + … + g[i, d]) for j <= i, EXCLUSIVE: exp(g[j + 1, d] + … +
/// g[i - 1, d]) for j < i; else 0. q, k [64, K]; sums as decay_column_sums leaves them for g.
///
/// A warp has 16 rows. What decays from j to i decays from j to the warp's first row and from there to i: both factors go
/// into the operands of a product in tf32. Within the warp's own 16 tokens the first is the inverse of a decay; where that
/// is out of range, entries are summed one by one.
template <bool EXCLUSIVE, int LD, class Q, class K>
FORGE_DEVICE Fragment<64, 64> decay_product(const Q& q, const K& k, const float* sums) {
    using namespace detail;
    const int w = warp(), g = lane() / 4, t = lane() % 4, row0 = w * kDecayRows;
    float sum[8][4] = {};
    bool steep = false;
    for (int d = lane(); d < Q::kCols; d += kLanes)
        steep = steep || (w > 0 ? sums[(row0 - 1) * LD + d] : 0.0f) - sums[(row0 + kDecayRows - 1) * LD + d] > kDecayRange;
    steep = __any_sync(kAllLanes, steep);
    switch (w) {
        case 0: decay_rows<0, EXCLUSIVE, LD>(q, k, sums, sum); break;
        case 1: decay_rows<1, EXCLUSIVE, LD>(q, k, sums, sum); break;
        case 2: decay_rows<2, EXCLUSIVE, LD>(q, k, sums, sum); break;
        case 3: decay_rows<3, EXCLUSIVE, LD>(q, k, sums, sum); break;
    }
    Fragment<64, 64> f;
    float own[8];
    if (steep) steep_block<EXCLUSIVE, LD>(q, k, sums, row0, own);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = row0 + g + e / 2 * 8, j = n * 8 + 2 * t + e % 2;
            const bool own_block = n / 2 == w;
            const float x = own_block && steep ? own[n % 2 * 4 + e] : sum[n][e];
            f.x[n * 4 + e] = j + EXCLUSIVE <= i ? x : 0.0f;
        }
    return f;
}

}  // namespace forge::cuda
