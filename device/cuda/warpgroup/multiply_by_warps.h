/// Products by the instructions of a warp (mma.sync): each warp of the group multiplies its 16 of every 64 rows, and a
/// product is over where it is issued. Included by multiply.h.
#pragma once

#include "../ptx/mma.h"
#include "fragment.h"

namespace forge::cuda {

namespace detail {

/// Blocks of 16 x 16 numbers of an operand, as a lane points into them: of a first operand (its warp's rows), or of a
/// second one.
template <class O, Along ALONG, bool FIRST>
class Blocks {
  public:
    FORGE_DEVICE explicit Blocks(const O& o) {
        // Lanes 8 to 15 point into the block that is further in the contraction of a second operand, beside it in a
        // first one; lanes 16 to 31 the other way round.
        const int further = lane() / 8 % 2 * 8, beyond = lane() / 16 * 8, self = lane() % 8,
                  in = FIRST ? beyond : further, beside = FIRST ? thread() % 128 / kLanes * 16 + further : beyond;
        const int row = ALONG == Along::Rows ? in : beside, col = ALONG == Along::Rows ? beside : in;
        at_ = ptx::shared_address(o.data) + 2 * static_cast<unsigned>(O::place(row + self, col));
    }
    /// The block so far in the contraction, and beside it.
    FORGE_DEVICE void load(unsigned (&x)[4], int in, int beside, int part) const {
        const int row = ALONG == Along::Rows ? in : beside, col = ALONG == Along::Rows ? beside : in;
        const unsigned from = static_cast<unsigned>(O::place_from(0, row, col / kPanel * kPanel) + part * O::kPart);
        ptx::load_blocks<ALONG == Along::Rows>(x, (at_ ^ static_cast<unsigned>(col % kPanel * 2)) + 2 * from);
    }

  private:
    unsigned at_;
};

/// d += a b of 16 numbers of the contraction, for all blocks of 64 rows, whose first operands are `a`.
template <class T, int M, int N, class B>
FORGE_DEVICE void multiply_step(Fragment<M, N>& d, const unsigned (&a)[M / 64][4], const B& b, int k, int part) {
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        unsigned x[4];
        b.load(x, k, n, part);
#pragma unroll
        for (int m = 0; m < M; m += 64)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                ptx::mma_m16n8k16<HalfOf<T>::value>(d.template block<8>(m, n + half * 8), a[m / 64],
                                                    {x[2 * half], x[2 * half + 1]});
    }
}

/// A pair of 16-bit numbers, or its negative.
template <Acc ACC>
FORGE_DEVICE unsigned signed_pair(unsigned x) {
    return ACC == Acc::Sub ? x ^ 0x80008000u : x;
}

template <Acc ACC, int M, int N>
FORGE_DEVICE void begin(Fragment<M, N>& d) {
    if constexpr (ACC == Acc::Set)
#pragma unroll
        for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) d.x[n] = 0;
}

}  // namespace detail

/// First operand from registers.
template <Acc ACC, Along B, class T, int M, int N, int K, int PARTS, class O>
FORGE_DEVICE void issue_multiply(Fragment<M, N>& d, const Packed<T, M, K, PARTS>& a, const O& b) {
    const detail::Blocks<O, B, false> right(b);
    detail::begin<ACC>(d);
    detail::each_pair_of_parts<PARTS, O::kParts>([&](int p, int q) {
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            unsigned first[M / 64][4];
#pragma unroll
            for (int n = 0; n < M / 16; ++n)
                first[n / 4][n % 4] = detail::signed_pair<ACC>(part_of(a, p).x[n / 4][k / 16][n % 4]);
            detail::multiply_step<T>(d, first, right, k, q);
        }
    });
}

/// First operand from shared memory. UNROLL: steps of 16 in the contraction that have a text of their own.
template <Acc ACC, Along A, Along B, int K, int UNROLL = K / 16, int M, int N, class L, class R>
FORGE_DEVICE void issue_multiply(Fragment<M, N>& d, const L& a, const R& b) {
    const detail::Blocks<L, A, true> left(a);
    const detail::Blocks<R, B, false> right(b);
    detail::begin<ACC>(d);
    detail::each_pair_of_parts<L::kParts, R::kParts>([&](int p, int q) {
#pragma unroll UNROLL
        for (int k = 0; k < K; k += 16) {
            unsigned first[M / 64][4];
#pragma unroll
            for (int m = 0; m < M / 64; ++m) {
                left.load(first[m], k, m * 64, p);
#pragma unroll
                for (int n = 0; n < 4; ++n) first[m][n] = detail::signed_pair<ACC>(first[m][n]);
            }
            detail::multiply_step<typename L::T>(d, first, right, k, q);
        }
    });
}

template <int PENDING, class... Fragments>
FORGE_DEVICE void finish(Fragments&...) {}

}  // namespace forge::cuda
