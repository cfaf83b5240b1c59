/// Inverse of a unit lower-triangular matrix of several blocks of 64 x 64 (inverse.h), down and to the right: with X
/// the inverse of A, of row r of blocks
///     X(r, r) = A(r, r)⁻¹,  X(r, c) = -X(r, r) (A(r, c) X(c, c) + … + A(r, r - 1) X(r - 1, c)),
/// products on the matrix units of numbers in two bf16 parts, which have 16 bits.
#pragma once

#include "inverse.h"
#include "move.h"
#include "multiply.h"

namespace forge::cuda {

namespace detail {

/// Block (row, col), in blocks.
template <int N>
FORGE_DEVICE Fragment<64, 64>& block_at(Fragment<N, N>& a, int row, int col) {
    return *reinterpret_cast<Fragment<64, 64>*>(&a.template block<64>(row * 64, col * 64));
}

/// Sets `product` to a b, or adds it; `work` has room for both parts of b.
template <Acc ACC>
FORGE_DEVICE void multiply_in_parts(Fragment<64, 64>& product, const Fragment<64, 64>& a, const Fragment<64, 64>& b,
                                    float* work) {
    const Operand<bf16, 64, 64, 2> right(work);
    sync();
    store_fragment<false>(right, b);
    const Packed<bf16, 64, 64, 2> left = pack_parts<bf16, 2>(a);
    publish();
    issue_multiply<ACC, Along::Rows>(product, left, right);
    finish<0>(product);
}

/// X(ROW, COL) takes the place of A(ROW, COL), which those to its right do not read.
template <int ROW, int COL, int N>
FORGE_DEVICE void invert_below(Fragment<N, N>& x, float* work) {
    Fragment<64, 64> sum;
    multiply_in_parts<Acc::Set>(sum, block_at(x, ROW, COL), block_at(x, COL, COL), work);
#pragma unroll
    for (int m = COL + 1; m < ROW; ++m)
        multiply_in_parts<Acc::Add>(sum, block_at(x, ROW, m), block_at(x, m, COL), work);
    Fragment<64, 64>& below = block_at(x, ROW, COL);
    multiply_in_parts<Acc::Set>(below, block_at(x, ROW, ROW), sum, work);
#pragma unroll
    for (float& y : below.x) y = -y;
}

/// The blocks of row ROW from column COL on, then those of the rows below. (Not loops: what they index are registers.)
template <int ROW, int COL, int N>
FORGE_DEVICE void invert_from(Fragment<N, N>& x, float* work) {
    if constexpr (COL < ROW) {
        invert_below<ROW, COL>(x, work);
        invert_from<ROW, COL + 1>(x, work);
    } else if constexpr (ROW + 1 < N / 64) {
        invert_from<ROW + 1, 0>(x, work);
    }
}

/// The blocks on the diagonal, by the same instructions: several times as many might not fit the multiprocessor's
/// cache.
template <int N>
FORGE_DEVICE void invert_diagonal(Fragment<N, N>& x, float* work) {
#pragma unroll 1
    for (int b = 0; b < N / 64; ++b) {
        Fragment<64, 64> own = block_at(x, 0, 0);
#pragma unroll
        for (int m = 1; m < N / 64; ++m)
#pragma unroll
            for (int n = 0; n < own.kRegisters; ++n) own.x[n] = b == m ? block_at(x, m, m).x[n] : own.x[n];
        sync();
        own = unit_lower_inverse(own, work);
#pragma unroll
        for (int m = 0; m < N / 64; ++m)
#pragma unroll
            for (int n = 0; n < own.kRegisters; ++n)
                block_at(x, m, m).x[n] = b == m ? own.x[n] : block_at(x, m, m).x[n];
    }
}

}  // namespace detail

/// `work`: kInverseOfBlocksFloats in shared memory, 1024-byte aligned.
constexpr int kInverseOfBlocksFloats = 64 * 64;
static_assert(kInverseOfBlocksFloats >= kInverseFloats);
template <int N>
FORGE_DEVICE Fragment<N, N> unit_lower_inverse(const Fragment<N, N>& a, float* work) {
    static_assert(N <= 192, "registers");
    Fragment<N, N> x = a;
#pragma unroll
    for (int row = 0; row < N / 64; ++row)
#pragma unroll
        for (int col = 1; col < N / 64; ++col)
            if (col > row) detail::block_at(x, row, col) = Fragment<64, 64>{};
    detail::invert_diagonal(x, work);
    detail::invert_from<0, 0>(x, work);
    return x;
}

}  // namespace forge::cuda
