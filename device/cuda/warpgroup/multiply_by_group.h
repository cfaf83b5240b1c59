/// Products by the instructions of a warp group (wgmma): asynchronous, with operands that shared memory has. Included
/// by multiply.h.
#pragma once

#include "../ptx/wgmma.h"
#include "fragment.h"

namespace forge::cuda {

namespace detail {

/// How far into an operand an instruction begins, from its steps in the contraction and beside it.
template <class O, Along ALONG>
FORGE_DEVICE constexpr unsigned distance(int contraction, int other, int part) {
    return ALONG == Along::Rows ? O::distance(contraction, other, part) : O::distance(other, contraction, part);
}

/// Columns that one instruction takes of N.
__host__ __device__ constexpr int columns_at_once(int n) { return n % 128 == 0 ? 128 : 64; }

/// f(m, n, k) for every instruction of an M x N product over K.
template <int M, int N, int K, class F>
FORGE_DEVICE void each_instruction(F f) {
#pragma unroll
    for (int m = 0; m < M; m += 64)
#pragma unroll
        for (int n = 0; n < N; n += columns_at_once(N))
#pragma unroll
            for (int k = 0; k < K; k += 16) f(m, n, k);
}

}  // namespace detail

/// First operand from registers.
template <Acc ACC, Along B, class T, int M, int N, int K, int PARTS, class O>
FORGE_DEVICE void issue_multiply(Fragment<M, N>& d, const Packed<T, M, K, PARTS>& a, const O& b) {
    constexpr int kCols = detail::columns_at_once(N), kSign = ACC == Acc::Sub ? -1 : 1;
    const Descriptor right = b.template descriptor<B == Along::Rows>();
    pin(d);
    ptx::wgmma_fence();
    detail::each_pair_of_parts<PARTS, O::kParts>([&](int p, int q) {
        detail::each_instruction<M, N, K>([&](int m, int n, int k) {
            const unsigned long long second = right.at(detail::distance<O, B>(k, n, q));
            const auto& first = part_of(a, p).x[m / 64][k / 16];
            auto& sum = d.template block<kCols>(m, n);
            if (ACC == Acc::Set && p + q == 0 && k == 0)
                ptx::Wgmma<HalfOf<T>::value, kCols, false, kSign, false, B == Along::Rows>::rs(sum, first, second);
            else ptx::Wgmma<HalfOf<T>::value, kCols, true, kSign, false, B == Along::Rows>::rs(sum, first, second);
        });
    });
    ptx::wgmma_commit();
}

/// First operand from shared memory.
template <Acc ACC, Along A, Along B, int K, int M, int N, class L, class R>
FORGE_DEVICE void issue_multiply(Fragment<M, N>& d, const L& a, const R& b) {
    using T = typename L::T;
    constexpr int kCols = detail::columns_at_once(N), kSign = ACC == Acc::Sub ? -1 : 1;
    const Descriptor left = a.template descriptor<A == Along::Rows>(),
                     right = b.template descriptor<B == Along::Rows>();
    pin(d);
    ptx::wgmma_fence();
    detail::each_pair_of_parts<L::kParts, R::kParts>([&](int p, int q) {
        detail::each_instruction<M, N, K>([&](int m, int n, int k) {
            const unsigned long long first = left.at(detail::distance<L, A>(k, m, p)),
                                     second = right.at(detail::distance<R, B>(k, n, q));
            auto& sum = d.template block<kCols>(m, n);
            if (ACC == Acc::Set && p + q == 0 && k == 0)
                ptx::Wgmma<HalfOf<T>::value, kCols, false, kSign, A == Along::Rows, B == Along::Rows>::ss(sum, first,
                                                                                                          second);
            else
                ptx::Wgmma<HalfOf<T>::value, kCols, true, kSign, A == Along::Rows, B == Along::Rows>::ss(sum, first,
                                                                                                         second);
        });
    });
    ptx::wgmma_commit();
}

/// The same of a fragment that is packed piece by piece, 32 numbers of a row at a time, where packed whole it would
/// find no registers. The product is over when this returns. AGAIN: another one has packed it.
template <class T, Acc ACC, Along B, bool AGAIN = false, int N, int K, class O>
FORGE_DEVICE void multiply_in_pieces(Fragment<64, N>& d, const Fragment<64, K>& a, const O& b) {
    constexpr int kPiece = 32, kCols = detail::columns_at_once(N), kSign = ACC == Acc::Sub ? -1 : 1;
    static_assert(O::kParts == 1);
    const Descriptor right = b.template descriptor<B == Along::Rows>();
#pragma unroll
    for (int from = 0; from < K; from += kPiece) {
        const Packed<T, 64, kPiece> piece = pack_columns<T, kPiece, AGAIN>(a, from);
        pin(d);
        ptx::wgmma_fence();
        detail::each_instruction<64, N, kPiece>([&](int m, int n, int k) {
            const unsigned long long second = right.at(detail::distance<O, B>(from + k, n, 0));
            auto& sum = d.template block<kCols>(m, n);
            if (ACC == Acc::Set && from + k == 0)
                ptx::Wgmma<HalfOf<T>::value, kCols, false, kSign, false, B == Along::Rows>::rs(sum, piece.x[0][k / 16],
                                                                                               second);
            else
                ptx::Wgmma<HalfOf<T>::value, kCols, true, kSign, false, B == Along::Rows>::rs(sum, piece.x[0][k / 16],
                                                                                              second);
        });
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(d);
    }
}

/// Waits for all products but the last PENDING; the fragments are what those gave that are done.
template <int PENDING, class... Fragments>
FORGE_DEVICE void finish(Fragments&... fragments) {
    ptx::wgmma_wait<PENDING>();
    (pin(fragments), ...);
}

}  // namespace forge::cuda
