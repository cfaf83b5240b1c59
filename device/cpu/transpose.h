/// Transpose of a tile: dst[N, M] = src[M, N]ᵀ, in registers.
///
/// Squares of kWidth rows are exchanged block by block: first neighbouring lanes between
/// neighbouring rows, then pairs, fours and eights. Only rows that exist are read and written;
/// columns go by whole vectors. src and dst do not overlap. A product with a transposed left
/// operand needs none of this: see matmul.h.
#pragma once

#include "vec.h"

namespace forge::cpu {

namespace detail {

// The D-lane groups of a that have odd number change places with the groups of b that have even
// number.
template <int D, int... L>
FORGE_INLINE void exchange(vec& a, vec& b, Lanes<L...>) {
    const vec even = __builtin_shufflevector(a, b, ((L & D) ? L - D + kWidth : L)...);
    b = __builtin_shufflevector(a, b, ((L & D) ? L + kWidth : L + D)...);
    a = even;
}

template <int D>
FORGE_INLINE void exchange_rows(vec* row) {
    if constexpr (D < kWidth) {
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) {
            if (!(i & D)) exchange<D>(row[i], row[i + D], AllLanes{});
        }
        exchange_rows<2 * D>(row);
    }
}

// dst[columns, :] = src[rows, :]ᵀ for one square; the rows that src lacks count as 0.
template <int LDS, int LDD>
FORGE_INLINE void transpose_square(const float* src, float* dst, int rows, int columns) {
    vec row[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) row[i] = i < rows ? load(src + i * LDS) : vec{};
    exchange_rows<1>(row);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
        if (i < columns) store(dst + i * LDD, row[i]);
    }
}

template <int LDS, int LDD>
__attribute__((noinline)) void transpose_full_square(const float* src, float* dst) {
    transpose_square<LDS, LDD>(src, dst, kWidth, kWidth);
}

template <int LDS, int LDD>
__attribute__((noinline)) void transpose_part_square(const float* src, float* dst, int rows, int columns) {
    transpose_square<LDS, LDD>(src, dst, rows, columns);
}

}  // namespace detail

template <int M, int N, int LDS, int LDD>
inline void transpose(const float* src, float* dst) {
    for (int i = 0; i < M; i += kWidth) {
        for (int j = 0; j < N; j += kWidth) {
            if (i + kWidth <= M && j + kWidth <= N) {
                detail::transpose_full_square<LDS, LDD>(src + i * LDS + j, dst + j * LDD + i);
            } else {
                detail::transpose_part_square<LDS, LDD>(src + i * LDS + j, dst + j * LDD + i, M - i, N - j);
            }
        }
    }
}

}  // namespace forge::cpu
