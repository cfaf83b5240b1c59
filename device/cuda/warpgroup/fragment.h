/// A matrix of M x N floats in the registers of a warp group, laid out as the matrix units leave their results: of each
/// 64 rows a warp has 16. A product's first operand has the same layout, so results feed products without leaving
/// registers.
///
/// `Of::Itself`: row i of the fragment is row i of the matrix. `Of::Transpose`: it holds the transpose.
#pragma once

#include "operand.h"

namespace forge::cuda {

/// Two neighbours in a fragment's row: their first register, and their place.
struct Spot {
    int index, i, j;
};

template <int M, int N>
struct Fragment {
    static_assert(M % 64 == 0 && N % 64 == 0, "whole blocks of 64 x 64");
    static constexpr int kRegisters = M * N / 128;
    float x[kRegisters];

    FORGE_DEVICE pair at(const Spot& s) const { return {{x[s.index], x[s.index + 1]}}; }
    FORGE_DEVICE void put(const Spot& s, const pair& v) {
        x[s.index] = v.x[0];
        x[s.index + 1] = v.x[1];
    }
    /// The registers of the 64 rows from `row` on, and `COLS` columns from `col` on.
    template <int COLS>
    FORGE_DEVICE float (&block(int row, int col))[COLS / 2] {
        return *reinterpret_cast<float(*)[COLS / 2]>(x + row / 64 * (N / 2) + col / 2);
    }
};

/// The spot of registers n and n + 1 of a fragment of N columns.
template <int N>
FORGE_DEVICE Spot spot_of(int n) {
    const int i = thread() % 128 / kLanes * 16 + lane() / 4, j = lane() % 4 * 2;
    return {n, n / (N / 2) * 64 + i + n / 2 % 2 * 8, n % (N / 2) / 4 * 8 + j};
}

/// f(spot) for all that this thread holds.
template <int M, int N, class F>
FORGE_DEVICE void each(F f) {
    const int i = thread() % 128 / kLanes * 16 + lane() / 4, j = lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < M * N / 128; n += 2) f(Spot{n, n / (N / 2) * 64 + i + n / 2 % 2 * 8, n % (N / 2) / 4 * 8 + j});
}

/// f(register, i, j) for each row of which this thread holds pairs: the first one's spot; the next has 4 registers and
/// 8 columns more.
template <int M, int N, class F>
FORGE_DEVICE void each_row(F f) {
#pragma unroll
    for (int m = 0; m < M / 64; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const Spot s = spot_of<N>(m * (N / 2) + 2 * h);
            f(s.index, s.i, s.j);
        }
}

/// A number that is the same for all lanes, which the compiler then sees.
FORGE_DEVICE int uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

/// f(spot) for what this thread holds of the blocks of 16 x 16 on and below the diagonal of an N x N fragment.
template <int N, class F>
FORGE_DEVICE void each_lower(F f) {
    constexpr int kBlock = 8;  // registers
    const int self = thread() % 128, own = uniform(self / kLanes), i = self / kLanes * 16 + self % kLanes / 4,
              j = self % 4 * 2;
#pragma unroll
    for (int m = 0; m < N / 64; ++m)
#pragma unroll
        for (int b = 0; b < 4 * (m + 1); ++b)
            if (b <= 4 * m + own)
#pragma unroll
                for (int n = b * kBlock; n < (b + 1) * kBlock; n += 2)
                    f(Spot{m * (N / 2) + n, m * 64 + i + n / 2 % 2 * 8, n / 4 * 8 + j});
}

/// ptx::hold, with all of its registers.
template <int M, int N>
FORGE_DEVICE void pin(Fragment<M, N>& f) {
#pragma unroll
    for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) ptx::hold(f.x[n]);
}

/// The same numbers (but 0 for -0) in registers that no product has written.
template <int M, int N>
FORGE_DEVICE Fragment<M, N> copied(const Fragment<M, N>& f) {
    Fragment<M, N> copy;
#pragma unroll
    for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) copy.x[n] = f.x[n] + 0.0f;
    return copy;
}

/// A fragment rounded to 16 bits, as a product's first operand takes it. Parts > 1: `rest` is what rounding took.
template <class T, int M, int N, int Parts = 1>
struct Packed : Packed<T, M, N, 1> {
    Packed<T, M, N, Parts - 1> rest;
};
template <class T, int M, int N>
struct Packed<T, M, N, 1> {
    unsigned x[M / 64][N / 16][4];
};

template <class T, int M, int N>
FORGE_DEVICE Packed<T, M, N> pack(const Fragment<M, N>& f) {
    Packed<T, M, N> p;
#pragma unroll
    for (int m = 0; m < M / 64; ++m)
#pragma unroll
        for (int n = 0; n < N / 4; ++n)
            p.x[m][n / 4][n % 4] = HalfOf<T>::pack(f.x[m * (N / 2) + 2 * n], f.x[m * (N / 2) + 2 * n + 1]);
    return p;
}

/// COLS of its columns. AGAIN: by other instructions, as the compiler would rather spill what it has packed before than
/// pack it anew.
template <class T, int COLS, bool AGAIN, int N>
FORGE_DEVICE Packed<T, 64, COLS> pack_columns(const Fragment<64, N>& f, int from) {
    Packed<T, 64, COLS> p;
#pragma unroll
    for (int n = 0; n < COLS / 4; ++n) {
        const float low = f.x[from / 2 + 2 * n], high = f.x[from / 2 + 2 * n + 1];
        const unsigned x = AGAIN ? HalfOf<T>::pack(high, low) : HalfOf<T>::pack(low, high);
        p.x[0][n / 4][n % 4] = AGAIN ? x << 16 | x >> 16 : x;
    }
    return p;
}

template <class T, int M, int N>
FORGE_DEVICE Fragment<M, N> unpack(const Packed<T, M, N>& p) {
    Fragment<M, N> f;
#pragma unroll
    for (int m = 0; m < M / 64; ++m)
#pragma unroll
        for (int n = 0; n < N / 4; ++n) {
            const pair v = HalfOf<T>::unpack(p.x[m][n / 4][n % 4]);
            f.x[m * (N / 2) + 2 * n] = v.x[0];
            f.x[m * (N / 2) + 2 * n + 1] = v.x[1];
        }
    return f;
}

/// What rounding took from a fragment.
template <class T, int M, int N>
FORGE_DEVICE Fragment<M, N> rest_of(const Fragment<M, N>& f, const Packed<T, M, N>& rounded) {
    Fragment<M, N> rest = unpack(rounded);
#pragma unroll
    for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) rest.x[n] = f.x[n] - rest.x[n];
    return rest;
}

/// The fragment in 16 bits, or what rounding took, …
template <class T, int M, int N, int PARTS>
FORGE_DEVICE const Packed<T, M, N>& part_of(const Packed<T, M, N, PARTS>& p, int which) {
    if constexpr (PARTS > 1) return which == 0 ? p : part_of(p.rest, which - 1);
    else return p;
}

/// … in so many parts.
template <class T, int PARTS, int M, int N>
FORGE_DEVICE Packed<T, M, N, PARTS> pack_parts(const Fragment<M, N>& f) {
    const Packed<T, M, N> p = pack<T>(f);
    if constexpr (PARTS > 1) return {p, pack_parts<T, PARTS - 1>(rest_of(f, p))};
    else return p;
}

namespace detail {

/// f(blocks, address of this lane's row of one of them), for groups of 16 x 16 of an M x N fragment and the operand
/// that it holds (or whose transpose it holds). A lane's blocks are, of its warp's rows: upper left, lower left, upper
/// right, lower right.
template <int M, int N, bool TRANSPOSE, class O, class F>
FORGE_DEVICE void each_block(const O& operand, F f) {
    const int l = lane(), warp_row = thread() % 128 / kLanes * 16;
#pragma unroll
    for (int m = 0; m < M / 64; ++m)
#pragma unroll
        for (int n = 0; n < N / 16; ++n) {
            const int i = m * 64 + warp_row + l / 8 % 2 * 8,
                      j = n * 16 + l / 16 * 8;  // of the block that this lane points into
            const int row = TRANSPOSE ? j + l % 8 : i + l % 8, col = TRANSPOSE ? i : j;
            f(m, n, ptx::shared_address(operand.data + O::place(row, col)));
        }
}

}  // namespace detail

/// The operand, or its transpose, as a packed fragment.
template <bool TRANSPOSE, int M, int N, class O>
FORGE_DEVICE Packed<typename O::T, M, N> load_packed(const O& operand, int part = 0) {
    Packed<typename O::T, M, N> p;
    detail::each_block<M, N, TRANSPOSE>(operand, [&](int m, int n, unsigned address) {
        ptx::load_blocks<TRANSPOSE>(p.x[m][n], address + part * O::kPart * 2);
    });
    return p;
}
template <bool TRANSPOSE, int M, int N, class O>
FORGE_DEVICE Fragment<M, N> load_fragment(const O& operand) {
    Fragment<M, N> f = unpack(load_packed<TRANSPOSE, M, N>(operand));
#pragma unroll
    for (int part = 1; part < O::kParts; ++part) {
        const Fragment<M, N> rest = unpack(load_packed<TRANSPOSE, M, N>(operand, part));
#pragma unroll
        for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) f.x[n] += rest.x[n];
    }
    return f;
}

template <bool TRANSPOSE, class O, class T, int M, int N, int PARTS>
FORGE_DEVICE void store_fragment(const O& operand, const Packed<T, M, N, PARTS>& p) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
        detail::each_block<M, N, TRANSPOSE>(operand, [&](int m, int n, unsigned address) {
            ptx::store_blocks<TRANSPOSE>(address + part * O::kPart * 2, part_of(p, part).x[m][n]);
        });
}

/// The fragment, or its transpose, as an operand.
template <bool TRANSPOSE, class O, int M, int N>
FORGE_DEVICE void store_fragment(const O& operand, const Fragment<M, N>& f) {
    using T = typename O::T;
    store_fragment<TRANSPOSE>(operand, pack_parts<T, O::kParts>(f));
}

/// The fragment's rows are rows n, n + COUNT, n + 2 COUNT, … of an operand; TRANSPOSE: the rows of its transpose.
template <bool TRANSPOSE, int n, int COUNT, class O, int M, int N>
FORGE_DEVICE void store_by_turns(const O& operand, const Fragment<M, N>& f) {
    using Half = HalfOf<typename O::T>;
    each<M, N>([&](const Spot& spot) {
        const pair x = f.at(spot);
        const unsigned bits = Half::pack(x.x[0], x.x[1]);
        if constexpr (TRANSPOSE) {
            auto* const to = reinterpret_cast<unsigned short*>(operand.data);
            to[O::place(spot.j * COUNT + n, spot.i)] = static_cast<unsigned short>(bits);
            to[O::place((spot.j + 1) * COUNT + n, spot.i)] = static_cast<unsigned short>(bits >> 16);
        } else {
            *reinterpret_cast<unsigned*>(operand.data + O::place(spot.i * COUNT + n, spot.j)) = bits;
        }
    });
}

}  // namespace forge::cuda
