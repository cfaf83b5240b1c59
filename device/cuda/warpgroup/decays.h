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

/// A warp's part of COUNT products that share k and the decays.
template <int COUNT>
struct DecaySums {
    float x[COUNT][8][4];
};

/// The four numbers of a first operand that a lane holds, with their decays.
template <class Q>
FORGE_DEVICE void decayed(unsigned (&a)[4], const Q& q, int row, int col, const float (&decay)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[e] = __float_as_uint(number_at(q, row + e % 2 * 8, col + e / 2 * 4) * decay[e]);
}

/// 16 rows from block R on, channels [d_begin, d_end): products of both factors' parts of the decays, for columns up to the
/// rows' own.
template <int R, bool EXCLUSIVE, int LD, class K, class... Qs>
FORGE_DEVICE void add_decay_rows(DecaySums<sizeof...(Qs)>& sum, int d_begin, int d_end, const float* sums, const K& k, const Qs&... qs) {
    constexpr int kRow0 = R * kDecayRows;
    constexpr float kRoundUp = 0.00070427f;  // log2(1 + 2^-11): the matrix units cut what rounding would round
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll 1
    for (int d0 = d_begin; d0 < d_end; d0 += 8) {
        float anchor[2], decay[4];
#pragma unroll
        for (int h = 0; h < 2; ++h) anchor[h] = R > 0 ? sums[(kRow0 - 1) * LD + d0 + t + 4 * h] : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = kRow0 + g + e % 2 * 8, d = d0 + t + e / 2 * 4;
            const float to = !EXCLUSIVE ? sums[i * LD + d] : i > 0 ? sums[(i - 1) * LD + d] : 0.0f;
            decay[e] = ptx::exp2_approximate(to - (anchor[e / 2] - kRoundUp));
        }
        unsigned a[sizeof...(Qs)][4];
        int count = 0;
        (decayed(a[count++], qs, kRow0 + g, d0 + t, decay), ...);
#pragma unroll
        for (int n = 0; n < 2 * (R + 1); ++n) {
            unsigned b[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int j = n * 8 + g, d = d0 + t + 4 * h;
                b[h] = __float_as_uint(number_at(k, j, d) * ptx::exp2_approximate((anchor[h] + kRoundUp) - sums[j * LD + d]));
            }
#pragma unroll
            for (int c = 0; c < static_cast<int>(sizeof...(Qs)); ++c) ptx::mma_m16n8k8_tf32(sum.x[c][n], a[c], b);
        }
    }
}

/// The 64 rows' work in equal parts: warp w has block w in the first half of the channels, block 3 - w in the second.
template <bool EXCLUSIVE, int LD, class K, class... Qs>
FORGE_DEVICE void share_decay_rows(DecaySums<sizeof...(Qs)>& own, DecaySums<sizeof...(Qs)>& other, const float* sums, const K& k, const Qs&... qs) {
    constexpr int kHalf = K::kCols / 2;
    DecaySums<sizeof...(Qs)> sum = {};
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
        const int begin = part * kHalf, end = begin + kHalf;
        switch (part == 0 ? warp() : 3 - warp()) {
            case 0: add_decay_rows<0, EXCLUSIVE, LD>(sum, begin, end, sums, k, qs...); break;
            case 1: add_decay_rows<1, EXCLUSIVE, LD>(sum, begin, end, sums, k, qs...); break;
            case 2: add_decay_rows<2, EXCLUSIVE, LD>(sum, begin, end, sums, k, qs...); break;
            case 3: add_decay_rows<3, EXCLUSIVE, LD>(sum, begin, end, sums, k, qs...); break;
        }
        if (part == 0) own = sum, sum = {};
    }
    other = sum;
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

namespace detail {

/// One of the products, with its own 16 tokens entry by entry if their decays are steep, and zeros above the diagonal.
template <bool EXCLUSIVE>
FORGE_DEVICE void finish_decay_product(Fragment<64, 64>& f, const float (&sum)[8][4], bool steep, const float (&steep_entries)[8]) {
    const int w = warp(), row0 = w * kDecayRows, g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int i = row0 + g + e / 2 * 8, j = n * 8 + 2 * t + e % 2;
            const float x = n / 2 == w && steep ? steep_entries[n % 2 * 4 + e] : sum[n][e];
            f.x[n * 4 + e] = j + EXCLUSIVE <= i ? x : 0.0f;
        }
}

template <int COUNT>
struct SteepEntries {
    float x[COUNT][8];
};

}  // namespace detail

/// The first operand of a product, and where the product goes.
template <class Q>
struct DecayFactor {
    const Q& q;
    Fragment<64, 64>& result;
};

/// For each q: out[i, j] = sum over d of q[i, d] k[j, d] exp(g[j + 1, d] + … + g[i, d]) for j <= i, EXCLUSIVE:
/// exp(g[j + 1, d] + … + g[i - 1, d]) for j < i; else 0. q, k [64, K]; sums as decay_column_sums leaves them for g, lost
/// afterwards.
///
/// What decays from j to i decays from j to the first of i's block of 16 rows and from there to i: both factors go into the
/// operands of a product in tf32. Within the block the first is the inverse of a decay; where that is out of range, the
/// block's entries are summed one by one.
template <bool EXCLUSIVE, int LD, class K, class... Qs>
FORGE_DEVICE void decay_products(float* sums, const K& k, const DecayFactor<Qs>&... factors) {
    using namespace detail;
    constexpr int kCount = sizeof...(Qs), kLanesFloats = 32 * kLanes;  // of a warp's part of a product
    static_assert(kCount * 4 * kLanesFloats <= 64 * LD, "the parts are exchanged where the sums lay");
    const int w = warp(), row0 = w * kDecayRows;
    bool steep = false;
    for (int d = lane(); d < K::kCols; d += kLanes)
        steep = steep || (w > 0 ? sums[(row0 - 1) * LD + d] : 0.0f) - sums[(row0 + kDecayRows - 1) * LD + d] > kDecayRange;
    steep = __any_sync(kAllLanes, steep);
    DecaySums<kCount> own, other;
    share_decay_rows<EXCLUSIVE, LD>(own, other, sums, k, factors.q...);
    SteepEntries<kCount> entries;
    int count = 0;
    if (steep) ((steep_block<EXCLUSIVE, LD>(factors.q, k, sums, row0, entries.x[count++])), ...);
    sync();
    const auto place = [&](int warp_of, int c, int n) { return sums + (c * 4 + warp_of) * kLanesFloats + n * kLanes * 4 + lane() * 4; };
#pragma unroll
    for (int c = 0; c < kCount; ++c)
#pragma unroll
        for (int n = 0; n < 8; ++n) *reinterpret_cast<float4*>(place(3 - w, c, n)) = make_float4(other.x[c][n][0], other.x[c][n][1], other.x[c][n][2], other.x[c][n][3]);
    sync();
#pragma unroll
    for (int c = 0; c < kCount; ++c)
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float4 x = *reinterpret_cast<const float4*>(place(w, c, n));
            own.x[c][n][0] += x.x, own.x[c][n][1] += x.y, own.x[c][n][2] += x.z, own.x[c][n][3] += x.w;
        }
    count = 0;
    ((finish_decay_product<EXCLUSIVE>(factors.result, own.x[count], steep, entries.x[count]), ++count), ...);
}

}  // namespace forge::cuda
