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

/// What a warp multiplies: p in a tile of rows of LDP floats, and the rows of x.
template <bool REVERSE, bool EXCLUSIVE, int LDP, class X>
struct DecayApply {
    static constexpr int K = X::kCols, kBlock = 16, kBlocks = 4, kTile = 8;
    using Sums = GateSums<K>;

    const float* p;
    const X& x;
    const Sums& sums;
    int own, row, col;  ///< the block of this warp's rows; within 8 x 8 of a fragment, the lane's row and first column

    FORGE_DEVICE DecayApply(const float* matrix, const X& rows, const Sums& gates)
        : p(matrix),
          x(rows),
          sums(gates),
          own(uniform(thread() % 128 / kLanes)),
          row(lane() / 4),
          col(lane() % 4 * 2) {}

    /// p's entry for an own row and another row, rounded up for tf32.
    FORGE_DEVICE float entry(int mine, int other) const {
        constexpr float kUp = 1.00035222f;  // exp2(kRoundedUp)
        if (EXCLUSIVE && mine == other) return 0.0f;
        return kUp * (REVERSE ? p[other * LDP + mine] : p[mine * LDP + other]);
    }

    /// The running sum up to a row, from kRoundedUp on; EXCLUSIVE: without the row's own, from the block's beginning.
    FORGE_DEVICE float until(int i, int d) const {
        if (!EXCLUSIVE) return *sums.at(i, d);
        return i % kBlock == 0 ? kRoundedUp : *sums.at(i - 1, d);
    }

    /// How another row's number decays, within its block: to the border that lies towards the own block, or, of the own
    /// block, from its beginning or to its end.
    FORGE_DEVICE float on_the_way(int other, int d, bool is_own) const {
        const float total = is_own == REVERSE ? *sums.total(other / kBlock, d) : 0.0f;
        const float sum = REVERSE ? until(other, d) - total : total + 2 * kRoundedUp - *sums.at(other, d);
        return ptx::exp2_approximate(sum);
    }

    /// How what has come to the own block decays to a row.
    FORGE_DEVICE float to_row(int i, int d) const {
        return ptx::exp2_approximate(REVERSE ? *sums.total(own, d) - *sums.at(i, d) + kRoundedUp
                                             : until(i, d) - kRoundedUp);
    }

    /// Adds what the 16 rows of a block give; before, what is there decays by `decay` of another block.
    FORGE_DEVICE void add_block(Fragment<64, K>& f, int block, int between) const {
        unsigned a[2][4];
        const int mine = own * kBlock + row, other = block * kBlock + col;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int n = 0; n < 4; ++n) a[h][n] = __float_as_uint(entry(mine + n % 2 * 8, other + h * 8 + n / 2));
#pragma unroll
        for (int tile = 0; tile < K / kTile; ++tile) {
            float(&y)[4] = reinterpret_cast<float(*)[4]>(f.x)[tile];
            if (between >= 0) {
                const float *decay = sums.total(between, tile * kTile + col), left = ptx::exp2_approximate(decay[0]),
                            right = ptx::exp2_approximate(decay[1]);
                y[0] *= left, y[1] *= right, y[2] *= left, y[3] *= right;
            }
            const int d = tile * kTile + row;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                unsigned b[2];
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const int i = other + h * 8 + n;
                    b[n] = __float_as_uint(x.number(i, d) * on_the_way(i, d, block == own));
                }
                ptx::mma_m16n8k8_tf32(y, a[h], b);
            }
        }
    }

    /// What the own block gives to (i, d), one by one.
    FORGE_DEVICE float steep_entry(int i, int d) const {
        float sum = 0.0f;
        const int first = REVERSE ? i + EXCLUSIVE : own * kBlock, end = REVERSE ? (own + 1) * kBlock : i + !EXCLUSIVE;
        for (int j = first; j < end; ++j) {
            const float since = REVERSE ? until(j, d) - *sums.at(i, d) : until(i, d) - *sums.at(j, d);
            sum += (REVERSE ? p[j * LDP + i] : p[i * LDP + j]) * x.number(j, d) * ptx::exp2_approximate(since);
        }
        return sum;
    }

    /// Rarely: a short text, register by register.
    FORGE_DEVICE void add_steep_entries(Fragment<64, K>& f) const {
#pragma unroll 1
        for (int n = 0; n < Fragment<64, K>::kRegisters; ++n) {
            const float y = steep_entry(own * kBlock + row + n / 2 % 2 * 8, n / 4 * kTile + col + n % 2);
#pragma unroll
            for (int m = 0; m < Fragment<64, K>::kRegisters; ++m) f.x[m] = m == n ? f.x[m] + y : f.x[m];
        }
    }

    FORGE_DEVICE Fragment<64, K> run() const {
        Fragment<64, K> f = {};
        const bool steep = is_steep(sums, own);
        constexpr int kStep = REVERSE ? -1 : 1;
        int between = -1;
#pragma unroll 1
        for (int block = REVERSE ? kBlocks - 1 : 0; block != own + (steep ? 0 : kStep); block += kStep) {
            add_block(f, block, block == own ? -1 : between);
            between = block + kStep;
        }
        each<64, K>([&](const Spot& s) {
            pair y = f.at(s);
#pragma unroll
            for (int l = 0; l < 2; ++l) y.x[l] *= to_row(s.i, s.j + l);
            f.put(s, y);
        });
        if (steep) add_steep_entries(f);
        return f;
    }
};

}  // namespace detail

/// out[i, d] = sum of p[i, j] x[j, d] exp(g[j + 1, d] + … + g[i, d]) over j <= i; EXCLUSIVE:
/// exp(g[j + 1, d] + … + g[i - 1, d]) over j < i. REVERSE: out[j, d] = sum of p[i, j] x[i, d] times the same over i. p
/// is lower triangular, in rows of LDP floats; `sums` are as sum_gates left them for g, as every thread sees them.
template <bool REVERSE, bool EXCLUSIVE, int LDP, class X>
FORGE_DEVICE Fragment<64, X::kCols> decay_apply(const float* p, const X& x, const GateSums<X::kCols>& sums) {
    return detail::DecayApply<REVERSE, EXCLUSIVE, LDP, X>(p, x, sums).run();
}

}  // namespace forge::cuda
