/// Products of a lower triangular matrix [64, 64] with rows [64, K] in which every channel decays on its own from token
/// to token: what the gradients of decay_products need. Decays are those of GateSums, products those of tf32.
///
/// With S the running sums of the log decays within a block of 16 rows and T_b the total of block b, a warp makes the
/// rows of one block. What comes from rows j of an earlier block b is p_ij x_j exp2(T_b - S_j), and decays by T of
/// every block in between and by S_i; what comes from its own block is p_ij x_j exp2(-S_j), times exp2(S_i). In
/// reverse, rows i of a later block give p_ij x_i exp2(S_i), which decays to the end of j's block, and by exp2(T_b -
/// S_j). No factor exceeds 1 but the inverse of a decay within a block; where that is out of range, its entries are
/// summed one by one.
#pragma once

#include "decay_products.h"

namespace forge::cuda {
namespace detail {

/// What a warp multiplies: p in a tile of rows of LDP floats, and the rows of x. Channels are taken 32 at a time, in a
/// loop of short text: kernels that need this have many such products, and an instruction cache of 128 KB. Within 16
/// channels, which two products share, a lane's columns of the second operand are neighbours, so that they are loaded
/// together, and the order of tokens is such that a warp's loads of x meet no bank twice.
template <bool REVERSE, bool EXCLUSIVE, int LDP, int PARTS, class X>
struct DecayApply {
    static constexpr int K = X::kCols, kBlock = 16, kBlocks = 4, kTile = 8, kTwoTiles = 16, kAtOnce = 32;
    static constexpr int kOwn = kAtOnce / 2;  ///< registers of a lane for these channels
    using Sums = GateSums<K>;

    static constexpr int kTwos = kAtOnce / kTwoTiles;

    const float* p;
    const X& x;
    const Sums& sums;
    int own, row, col;   ///< the block of this warp's rows; within 8 x 8 of a fragment, the lane's row and first column
    int token[2];        ///< which tokens of 8 a lane multiplies
    int pair_col;        ///< of 16 channels, the first of the two that a lane loads
    int p_of[2];         ///< where these tokens' entries of p for the own row lie, in the first block of 8
    int x_of[2][kTwos];  ///< where their rows of x lie, in the first 32 channels
    int sum_of[2][kTwos];  ///< where the sums lie by which they decay

    FORGE_DEVICE DecayApply(const float* matrix, const X& rows, const Sums& gates)
        : p(matrix), x(rows), sums(gates), own(uniform(thread() % 128 / kLanes)), row(lane() / 4), col(lane() % 4 * 2) {
        token[0] = col + lane() % 2, token[1] = token[0] ^ 1;
        pair_col = row % 2 * kTile + row / 2 * 2;
        const int mine = own * kBlock + row;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            p_of[n] = REVERSE ? token[n] * LDP + mine : mine * LDP + token[n];
#pragma unroll
            for (int two = 0; two < kTwos; ++two) {
                const int d = two * kTwoTiles + pair_col;
                x_of[n][two] = X::place(token[n], d);
                sum_of[n][two] = place_of_sum(token[n], d, REVERSE);
            }
        }
    }

    /// From kRoundedUp on, the running sums in a row of the first block of 16; of those by which later rows decay,
    /// where EXCLUSIVE, in the row before, which is alike in every block.
    FORGE_DEVICE int place_of_sum(int i, int d, bool of_later) const {
        return of_later && EXCLUSIVE ? Sums::place((i + 7) % 8, d) + (i == 0 ? -8 : 0) * K : Sums::place(i, d);
    }
    FORGE_DEVICE pair until(int place, bool is_first) const {
        return EXCLUSIVE && is_first ? broadcast_pair(kRoundedUp) : load_pair(sums.data + place);
    }

    FORGE_DEVICE static pair exp2_of(const pair& y) {
        return each(y, [](float z) { return ptx::exp2_approximate(z); });
    }

    /// Adds what the 16 rows of a block give to the channels from d0 on; before, what is there decays by `decay` of
    /// another block.
    FORGE_DEVICE void add_block(float (&y)[kOwn / 4][4], int d0, int block, int between) const {
        constexpr float kUp = 1.00035222f;  // exp2(kRoundedUp): rounded up for tf32
        unsigned a[2][4];
        const int first = block * kBlock;
        const float* const entries = p + first * (REVERSE ? LDP : 1);
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float entry =
                    entries[p_of[n / 2] + h * 8 * (REVERSE ? LDP : 1) + n % 2 * 8 * (REVERSE ? 1 : LDP)];
                const bool same = EXCLUSIVE && block == own && h == n % 2 && token[n / 2] == row;
                a[h][n] = __float_as_uint(same ? 0.0f : kUp * entry);
            }
        if (between >= 0)
#pragma unroll
            for (int tile = 0; tile < kOwn / 4; ++tile) {
                const pair decay = exp2_of(load_pair(sums.total(between, d0 + tile * kTile + col)));
#pragma unroll
                for (int n = 0; n < 4; ++n) y[tile][n] *= decay.x[n % 2];
            }
        const int sums_from = first * K + d0;
#pragma unroll
        for (int two = 0; two < kTwos; ++two) {
            // Another row's numbers decay, within their block, to the border that lies towards the own block; of the
            // own block from its beginning or to its end. What has a second part is not rounded up.
            constexpr float kNotRounded = PARTS == 2 ? kRoundedUp : 0;
            const pair total = (block == own) == REVERSE ? load_pair(sums.total(block, d0 + two * kTwoTiles + pair_col))
                                                         : broadcast_pair(0.0f),
                       from = !REVERSE     ? total + broadcast_pair(2 * kRoundedUp - kNotRounded)
                              : PARTS == 2 ? total + broadcast_pair(kNotRounded)
                                           : total;
            // Of two products, both have the lane's first columns of two tiles, or both the second ones.
            float sum[2][4];
#pragma unroll
            for (int n = 0; n < 8; ++n) sum[n % 2][n / 4 * 2 + n / 2 % 2] = y[2 * two + n / 2 % 2][n / 4 * 2 + n % 2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                unsigned b[2][2], rest[2][2];
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const pair until_it =
                        until(sums_from + sum_of[n][two] + h * 8 * K, REVERSE && h == 0 && token[n] == 0);
                    const pair decayed = x.at_place(X::place_from(x_of[n][two], first + h * 8, d0)) *
                                         exp2_of(REVERSE ? until_it - from : from - until_it);
#pragma unroll
                    for (int l = 0; l < 2; ++l) {
                        b[l][n] = __float_as_uint(decayed.x[l]);
                        const float first_part = __uint_as_float(b[l][n] & 0xffffe000u);  // all that tf32 takes of it
                        rest[l][n] = __float_as_uint(decayed.x[l] - first_part);
                    }
                }
#pragma unroll
                for (int l = 0; l < 2; ++l) {
                    ptx::mma_m16n8k8_tf32(sum[l], a[h], b[l]);
                    if constexpr (PARTS == 2) ptx::mma_m16n8k8_tf32(sum[l], a[h], rest[l]);
                }
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) y[2 * two + n / 2 % 2][n / 4 * 2 + n % 2] = sum[n % 2][n / 4 * 2 + n / 2 % 2];
        }
    }

    /// What has come to the own block decays to its rows.
    FORGE_DEVICE void decay_to_rows(float (&y)[kOwn / 4][4], int d0) const {
#pragma unroll
        for (int tile = 0; tile < kOwn / 4; ++tile) {
            const int place = own * kBlock * K + d0 + place_of_sum(row, tile * kTile + col, !REVERSE);
            const pair total = REVERSE
                                   ? load_pair(sums.total(own, d0 + tile * kTile + col)) + broadcast_pair(kRoundedUp)
                                   : broadcast_pair(-kRoundedUp);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const pair sum = until(place + h * 8 * K, !REVERSE && h == 0 && row == 0),
                           decay = exp2_of(REVERSE ? total - sum : sum + total);
                y[tile][2 * h] *= decay.x[0], y[tile][2 * h + 1] *= decay.x[1];
            }
        }
    }

    /// What the own block gives to (i, d), one by one.
    FORGE_DEVICE float steep_entry(int i, int d) const {
        float sum = 0.0f;
        const int first = REVERSE ? i + EXCLUSIVE : own * kBlock, end = REVERSE ? (own + 1) * kBlock : i + !EXCLUSIVE;
#pragma unroll 1
        for (int j = first; j < end; ++j) {
            const int later = REVERSE ? j : i, before = REVERSE ? i : j;  // EXCLUSIVE: a block has rows between them
            const float since = *sums.at(later - EXCLUSIVE, d) - *sums.at(before, d);
            sum += (REVERSE ? p[j * LDP + i] : p[i * LDP + j]) * x.number(j, d) * ptx::exp2_approximate(since);
        }
        return sum;
    }

    /// Rarely: a short text, register by register.
    FORGE_DEVICE void add_steep_entries(float (&y)[kOwn / 4][4], int d0) const {
#pragma unroll 1
        for (int n = 0; n < kOwn; ++n) {
            const float entry = steep_entry(own * kBlock + row + n / 2 % 2 * 8, d0 + n / 4 * kTile + col + n % 2);
#pragma unroll
            for (int m = 0; m < kOwn; ++m) y[m / 4][m % 4] += m == n ? entry : 0.0f;
        }
    }

    /// 32 channels, from d0 on.
    FORGE_DEVICE void make(float (&y)[kOwn / 4][4], int d0, bool steep) const {
        constexpr int kStep = REVERSE ? -1 : 1;
        int between = -1;
#pragma unroll 1
        for (int block = REVERSE ? kBlocks - 1 : 0; block != own + (steep ? 0 : kStep); block += kStep) {
            add_block(y, d0, block, block == own ? -1 : between);
            between = block + kStep;
        }
        decay_to_rows(y, d0);
        if (steep) add_steep_entries(y, d0);
    }

    /// Registers have no address: those of 32 channels are the fragment's last, and all move on by as many.
    FORGE_DEVICE Fragment<64, K> run() const {
        Fragment<64, K> f = {};
        constexpr unsigned kGroups = (1u << kAtOnce / kGroup) - 1;
        const unsigned steep = steep_groups(sums, own);
#pragma unroll 1
        for (int d0 = 0; d0 < K; d0 += kAtOnce) {
            float y[kOwn / 4][4] = {};
            make(y, d0, (steep >> d0 / kGroup & kGroups) != 0);
#pragma unroll
            for (int n = 0; n < Fragment<64, K>::kRegisters - kOwn; ++n) f.x[n] = f.x[n + kOwn];
#pragma unroll
            for (int n = 0; n < kOwn; ++n) f.x[Fragment<64, K>::kRegisters - kOwn + n] = y[n / 4][n % 4];
        }
        return f;
    }
};

}  // namespace detail

/// out[i, d] = sum of p[i, j] x[j, d] exp(g[j + 1, d] + … + g[i, d]) over j <= i; EXCLUSIVE:
/// exp(g[j + 1, d] + … + g[i - 1, d]) over j < i. REVERSE: out[j, d] = sum of p[i, j] x[i, d] times the same over i. p
/// is lower triangular, in rows of LDP floats; `sums` are as sum_gates left them for g, as every thread sees them.
/// PARTS == 2: what decays is multiplied in two parts of tf32. As p is rounded alike both ways, x' * out and, in
/// reverse, x * out of x' are then sums of the same numbers, which differences of such sums, the gates' gradients,
/// need.
template <bool REVERSE, bool EXCLUSIVE, int LDP, int PARTS = 1, class X>
FORGE_DEVICE Fragment<64, X::kCols> decay_apply(const float* p, const X& x, const GateSums<X::kCols>& sums) {
    return detail::DecayApply<REVERSE, EXCLUSIVE, LDP, PARTS, X>(p, x, sums).run();
}

}  // namespace forge::cuda
