/// Running sums of log decays [64, K] down the columns of each block of 16 tokens, in powers of two. A log decay below
/// -126 counts as -126, whose exponential is 0 in fp32: -inf gives 0 and no NaN. NaN stays NaN.
#pragma once

#include "../portable/io.h"
#include "../ptx/convert.h"
#include "../ptx/copy.h"

namespace forge::cuda {

/// log2(1 + c 2^-11). The matrix units cut a float to tf32's 11 bits; times 1 + c 2^-11 before, it is rounded. With the
/// mean of 1/m over significands m in [1, 2) for c, 1/(2 ln 2), errors are 0 on average; a number of 11 bits stays
/// itself, as less than its last bit is added. Whatever else such a number is for must lose this factor again.
constexpr float kRoundedUp = 0.00050806f;

/// The sums as they lie in shared memory: 64 rows, then for each block one of totals, and two of factors: what has
/// decayed from the chunk's beginning to the block's, and what decays from the block's end to the chunk's, both for
/// numbers that were rounded up (kRoundedUp). In odd rows every other 16 columns change places, so that a warp's reads
/// of 16 columns from each of eight rows meet no bank of memory twice.
template <int K>
struct GateSums {
    static_assert(K % 32 == 0, "whole pairs of 16 columns");
    static constexpr int kColumns = K, kBlock = 16, kBlocks = 4, kFloats = (64 + 3 * kBlocks) * K;
    float* data;  ///< 16-byte aligned

    FORGE_DEVICE explicit GateSums(float* scratch) : data(scratch) {}
    FORGE_DEVICE static int place(int row, int col) { return row * K + (col ^ row % 2 * 16); }
    FORGE_DEVICE float* at(int row, int col) const { return data + row * K + (col ^ row % 2 * 16); }
    FORGE_DEVICE float* total(int block, int col) const { return data + (64 + block) * K + col; }
    FORGE_DEVICE float* before(int block, int col) const { return data + (68 + block) * K + col; }
    FORGE_DEVICE float* after(int block, int col) const { return data + (72 + block) * K + col; }
};

namespace detail {

/// A block's gates of four channels, number by number, to where their sums will lie.
template <int K>
FORGE_DEVICE void gather_gates(const GateSums<K>& sums, const float* from, Size row_stride, Size col_stride, int row0,
                               int col, int rows, int cols) {
#pragma unroll 1
    for (int i = row0; i < row0 + GateSums<K>::kBlock; ++i, from += row_stride) {
        vec x = broadcast(0.0f);
#pragma unroll
        for (int l = 0; l < kWidth; ++l)
            if (i < rows && col + l < cols) x.x[l] = from[l * col_stride];
        store(sums.at(i, col), x);
    }
}

/// Gates of a warp's block from global memory to where their sums will lie, by the threads that will sum them: past the
/// first-level cache, and through no registers.
template <int K>
FORGE_DEVICE void bring_gates(const GateSums<K>& sums, const float* gates, Size row_stride, Size col_stride, int rows,
                              int cols) {
    constexpr int kRows = GateSums<K>::kBlock;
    const int row0 = warp() * kRows;
    const bool vectors =
        col_stride == 1 && (reinterpret_cast<Size>(gates) | row_stride * 4) % 16 == 0 && cols % kWidth == 0;
#pragma unroll 1
    for (int d = lane() * kWidth; d < K; d += kLanes * kWidth) {
        const float* from = gates + row0 * row_stride + d * col_stride;
        if (!vectors) {
            gather_gates(sums, from, row_stride, col_stride, row0, d, rows, cols);
            continue;
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i, from += row_stride) {
            const bool there = row0 + i < rows && d < cols;
            ptx::copy_16(ptx::shared_address(sums.at(row0 + i, d)), there ? from : gates, there ? 16 : 0);
        }
    }
    ptx::copy_commit();
    ptx::copy_wait<0>();
}

/// The sums of a warp's block and their total, of gates(i, d) and the three beside it. ROWS at a time.
template <int ROWS, int K, class Gates>
FORGE_DEVICE void sum_block(const GateSums<K>& sums, Gates gates) {
    constexpr float kLog2E = 1.44269504f;
    constexpr int kRows = GateSums<K>::kBlock;
    static_assert(kWarps == GateSums<K>::kBlocks);
    const int block = warp(), row0 = block * kRows;
#pragma unroll 1
    for (int d = lane() * kWidth; d < K; d += kLanes * kWidth) {
        vec sum = broadcast(kRoundedUp);
#pragma unroll ROWS
        for (int i = row0; i < row0 + kRows; ++i) {
            const vec g = each(gates(i, d), [](float x) { return ptx::maximum_or_nan(x, -126.0f); });
            sum = sum + g * broadcast(kLog2E);
            store(sums.at(i, d), sum);
        }
        store(sums.total(block, d), sum - broadcast(kRoundedUp));
    }
}

}  // namespace detail

/// The running sums, from kRoundedUp on, and the totals of gates(i, d) = gates[i * row_stride + d * col_stride] in
/// global memory, of 0 for i >= rows and d >= cols. ROWS of a block at a time: fewer are a shorter text.
template <int ROWS = 16, int K>
FORGE_DEVICE void sum_gates(const GateSums<K>& sums, const float* gates, Size row_stride, Size col_stride, int rows,
                            int cols = K) {
    detail::bring_gates(sums, gates, row_stride, col_stride, rows, cols);
    detail::sum_block<ROWS>(sums, [&](int i, int d) { return load(sums.at(i, d)); });
}

/// The same of gates in shared memory.
template <int ROWS = 16, int K>
FORGE_DEVICE void sum_gates_of_tile(const GateSums<K>& sums, const float* gates, int row_stride, int col_stride) {
    detail::sum_block<ROWS>(sums, [&](int i, int d) {
        const float* const from = gates + i * row_stride + d * col_stride;
        vec x;
#pragma unroll
        for (int l = 0; l < kWidth; ++l) x.x[l] = from[l * col_stride];
        return x;
    });
}

/// The factors of this warp's block, from the totals as every thread sees them; for this warp. `whole`, if not null,
/// gets each column's sum as it is, [K].
template <int K>
FORGE_DEVICE void make_block_factors(const GateSums<K>& sums, int block, float* whole) {
    constexpr float kLn2 = 0.693147181f;
    const auto exp2_of = [](const vec& x) { return each(x, [](float y) { return ptx::exp2_approximate(y); }); };
#pragma unroll 1
    for (int d = lane() * kWidth; d < K; d += kLanes * kWidth) {
        vec before = broadcast(0.0f), after = before, all = before;
#pragma unroll
        for (int b = 0; b < GateSums<K>::kBlocks; ++b) {
            const vec total = load(sums.total(b, d));
            all = all + total;
            if (b < block) before = all;
            if (b > block) after = after + total;
        }
        store(sums.before(block, d), exp2_of(before - broadcast(kRoundedUp)));
        store(sums.after(block, d), exp2_of(after - broadcast(kRoundedUp)));
        if (whole && block == 0) store(whole + d, all * broadcast(kLn2));
    }
    __syncwarp();
}

}  // namespace forge::cuda
