/// Inverse of a unit lower-triangular tile, in fp32: 1 on the diagonal of the result, 0 above.
///
/// Only the entries of `a` below the diagonal are read; `a` and `out` do not overlap. Blocks of 16
/// are inverted by forward substitution, larger ones from halves, so that most work is products:
///     [A 0; B C]⁻¹ = [A⁻¹ 0; -C⁻¹ B A⁻¹ C⁻¹].
/// No pivoting and no test of conditioning.
#pragma once

#include "io.h"
#include "matmul.h"

namespace forge::cpu {

namespace detail {

constexpr int kInverseBlock = 16;

// Row i of the inverse is e_i - sum over j < i of a(i, j) row j. As soon as row j is known it
// leaves all rows below: the chain of dependent operations is N long, not N^2 / 2.
template <int N, int LDS, int LDD>
__attribute__((noinline)) void unit_lower_inverse_block(const float* a, float* out) {
    for (int c = 0; c < N; c += kWidth) {
        vec row[N];
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) row[i] = eye(i, c);
#pragma GCC unroll 16
        for (int j = 0; j < N; ++j) {
#pragma GCC unroll 16
            for (int i = j + 1; i < N; ++i) row[i] -= a[i * LDS + j] * row[j];
        }
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) store(out + i * LDD + c, row[i]);
    }
}

// How many of n rows the upper half takes: a power of two of them, at least a block, so that few
// sizes occur.
constexpr int inverse_split(int n) {
    int half = kInverseBlock;
    while (2 * half < n) half *= 2;
    return half;
}

}  // namespace detail

template <int N, int LDS, int LDD>
void unit_lower_inverse(const float* a, float* out) {
    if constexpr (N <= detail::kInverseBlock) {
        detail::unit_lower_inverse_block<N, LDS, LDD>(a, out);
    } else {
        constexpr int H = detail::inverse_split(N);  // rows of A
        constexpr int L = N - H;                     // rows of C
        const float* below = a + H * LDS;
        float* bottom = out + H * LDD;
        unit_lower_inverse<H, LDS, LDD>(a, out);
        unit_lower_inverse<L, LDS, LDD>(below + H, bottom + H);

        alignas(64) float product[L * H];
        matmul<L, H, H, LDS, 1, LDD, H>(below, out, product);
        fill_tile<L, H, LDD>(bottom, 0);
        matmul<L, H, L, LDD, 1, H, LDD, Acc::Sub, Tri::ALower>(bottom + H, product, bottom);
        fill_tile<H, L, LDD>(out + H, 0);
    }
}

}  // namespace forge::cpu
