/// Sums over the rows or the columns of what a warp group evaluates at the spots of an M x N fragment, and the greatest
/// numbers of these, into a vector of floats; running sums of a fragment. The order of the terms is fixed.
#pragma once

#include "fragment.h"

namespace forge::cuda {

namespace detail {

/// x of the lanes whose numbers differ in the bits FROM, 2 FROM, … below TO, combined.
template <class Op, int FROM, int TO>
FORGE_DEVICE float reduce_some_lanes(float x) {
#pragma unroll
    for (int bit = FROM; bit < TO; bit *= 2) x = Op::of(x, __shfl_xor_sync(kAllLanes, x, bit));
    return x;
}

template <class Op, int M, int N, class F>
FORGE_DEVICE void reduce_rows(float* to, F f) {
    constexpr int kOwn = M / 32;  // rows of this thread
    float own[kOwn];
#pragma unroll
    for (float& x : own) x = Op::nothing();
    each<M, N>([&](const Spot& s) {
        const pair x = f(s);
        float& row = own[s.index / (N / 2) * 2 + s.index / 2 % 2];
        row = Op::of(row, Op::of(x.x[0], x.x[1]));
    });
    const int row = thread() % 128 / kLanes * 16 + lane() / 4;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
        const float all = reduce_some_lanes<Op, 1, 4>(own[n]);
        if (lane() % 4 == 0) to[n / 2 * 64 + row + n % 2 * 8] = all;
    }
}

template <class Op, int M, int N, class F>
FORGE_DEVICE void reduce_rows_in_memory(float* to, F f) {
    const int first = thread() % 128 / kLanes * 16 + lane() / 4;
#pragma unroll 1
    for (int n = 0; n < M / 32; ++n) {
        const int i = n / 2 * 64 + n % 2 * 8 + first;
        float all = Op::nothing();
#pragma unroll 8
        for (int j = lane() % 4 * 2; j < N; j += 8) {
            const pair x = f(Spot{0, i, j});
            all = Op::of(all, Op::of(x.x[0], x.x[1]));
        }
        all = reduce_some_lanes<Op, 1, 4>(all);
        if (lane() % 4 == 0) to[i] = all;
    }
}

/// Of two lanes, whose numbers differ in BIT, each keeps half of the columns that both have, until each has an eighth.
/// Returns the first that this lane keeps. Bounds are constants, or `own` would have addresses, in local memory.
template <class Op, int BIT, int LEFT, int OWN>
FORGE_DEVICE int divide_columns(float (&own)[OWN]) {
    if constexpr (BIT < kLanes) {
        const bool upper = lane() & BIT;
#pragma unroll
        for (int n = 0; n < LEFT; ++n) {
            const float kept = upper ? own[n + LEFT] : own[n], given = upper ? own[n] : own[n + LEFT];
            own[n] = Op::of(kept, __shfl_xor_sync(kAllLanes, given, BIT));
        }
        return (upper ? LEFT : 0) + divide_columns<Op, BIT * 2, LEFT / 2>(own);
    }
    return 0;
}

/// to[j] = what the four warps have of column j, combined.
template <class Op, int N>
FORGE_DEVICE void combine_warps(float* to, const float* work) {
    for (int j = thread(); j < N; j += kThreads)
        to[j] = Op::of(Op::of(work[j], work[N + j]), Op::of(work[2 * N + j], work[3 * N + j]));
}

template <class Op, int M, int N, class F>
FORGE_DEVICE void reduce_columns(float* to, float* work, F f) {
    constexpr int kOwn = N / 4;  // columns of this thread
    float own[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; n += 2) {
        pair all{{Op::nothing(), Op::nothing()}};
#pragma unroll
        for (int row = 0; row < M / 32; ++row) {
            const pair x = f(spot_of<N>(row / 2 * (N / 2) + n * 2 + row % 2 * 2));
            all = {{Op::of(all.x[0], x.x[0]), Op::of(all.x[1], x.x[1])}};
        }
        own[n] = all.x[0], own[n + 1] = all.x[1];
    }
    const int first = divide_columns<Op, 4, kOwn / 2>(own);
    float* const of_warp = work + thread() % 128 / kLanes * N + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kOwn / 8; ++n) of_warp[(first + n) / 2 * 8 + (first + n) % 2] = own[n];
    sync();
    combine_warps<Op, N>(to, work);
}

/// A warp has M / 4 rows, of which a lane goes down a pair of columns, so that no lanes have anything in common.
template <class Op, int M, int N, class F>
FORGE_DEVICE void reduce_columns_in_memory(float* to, float* work, F f) {
    constexpr int kWarps = 4, kRows = M / kWarps;
    const int warp = uniform(thread() % 128 / kLanes);
#pragma unroll 1
    for (int j = lane() * 2; j < N; j += kLanes * 2) {
        pair all{{Op::nothing(), Op::nothing()}};
#pragma unroll 8
        for (int n = 0; n < kRows; ++n) {
            const pair x = f(Spot{0, warp * kRows + n, j});
            all = {{Op::of(all.x[0], x.x[0]), Op::of(all.x[1], x.x[1])}};
        }
        store_pair(work + warp * N + j, all);
    }
    sync();
    combine_warps<Op, N>(to, work);
}

}  // namespace detail

/// sums[i] = the sum of row i.
template <int M, int N, class F>
FORGE_DEVICE void sum_rows(float* sums, F f) {
    detail::reduce_rows<detail::Plus, M, N>(sums, f);
}
template <int M, int N, class F>
FORGE_DEVICE void greatest_of_rows(float* greatest, F f) {
    detail::reduce_rows<detail::Larger, M, N>(greatest, f);
}

/// The same of what lies in memory alone, in a loop of short text: f of a spot without a register.
template <int M, int N, class F>
FORGE_DEVICE void sum_rows_in_memory(float* sums, F f) {
    detail::reduce_rows_in_memory<detail::Plus, M, N>(sums, f);
}
template <int M, int N, class F>
FORGE_DEVICE void greatest_of_rows_in_memory(float* greatest, F f) {
    detail::reduce_rows_in_memory<detail::Larger, M, N>(greatest, f);
}

/// sums[i] = the sum over row i of the products of two operands, number by number. A row is one thread's, or two
/// threads have halves of each of its panels; neighbours read different banks.
template <class A, class B>
FORGE_DEVICE void sum_rows_of_products(float* sums, const A& a, const B& b) {
    constexpr int M = A::kRows, N = A::kCols;
    static_assert(B::kRows == M && B::kCols == N && A::kParts == 1 && B::kParts == 1);
    constexpr int kSplit = M % kThreads == 0 ? 1 : 2, kOwn = kPanel / kPiece / kSplit, kWords = 4;
    const int half = thread() % kSplit;
#pragma unroll 1
    for (int row = thread() / kSplit; row < M; row += kThreads / kSplit) {
        float all[kWords] = {};
#pragma unroll 4
        for (int n = 0; n < N / kPanel * kOwn; ++n) {
            const int piece = (n % kOwn + half * kOwn) ^ row % 8,
                      place = n / kOwn * M * kPanel + row * kPanel + piece * kPiece;
            const uint4 x = *reinterpret_cast<const uint4*>(a.data + place),
                        y = *reinterpret_cast<const uint4*>(b.data + place);
            const unsigned of_a[] = {x.x, x.y, x.z, x.w}, of_b[] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int w = 0; w < kWords; ++w) {
                const pair s = HalfOf<typename A::T>::unpack(of_a[w]), t = HalfOf<typename B::T>::unpack(of_b[w]);
                all[w] += s.x[0] * t.x[0], all[w] += s.x[1] * t.x[1];
            }
        }
        float sum = (all[0] + all[1]) + (all[2] + all[3]);
        if constexpr (kSplit == 2) sum += __shfl_xor_sync(kAllLanes, sum, 1);
        if (half == 0) sums[row] = sum;
    }
}

/// sums[j] = the sum of column j; `work`: 4 * N floats.
template <int M, int N, class F>
FORGE_DEVICE void sum_columns(float* sums, float* work, F f) {
    detail::reduce_columns<detail::Plus, M, N>(sums, work, f);
}
template <int M, int N, class F>
FORGE_DEVICE void greatest_of_columns(float* greatest, float* work, F f) {
    detail::reduce_columns<detail::Larger, M, N>(greatest, work, f);
}

/// The same of what lies in memory alone: f of a spot without a register.
template <int M, int N, class F>
FORGE_DEVICE void sum_columns_in_memory(float* sums, float* work, F f) {
    detail::reduce_columns_in_memory<detail::Plus, M, N>(sums, work, f);
}
template <int M, int N, class F>
FORGE_DEVICE void greatest_of_columns_in_memory(float* greatest, float* work, F f) {
    detail::reduce_columns_in_memory<detail::Larger, M, N>(greatest, work, f);
}

/// f[i, j] = f[0, j] + … + f[i, j]; EXCLUSIVE: up to f[i - 1, j]; REVERSE: from the last row on. A warp has 16 rows, 32
/// columns of which at a time lie in its part of `work`, where each lane goes through one of them; then what the warps
/// before have is added. `work`: 4 * N + 2560 floats.
template <bool REVERSE, bool EXCLUSIVE, int N>
FORGE_DEVICE Fragment<64, N> running_sums(Fragment<64, N> f, float* work) {
    constexpr int kWarpsOfRows = 4, kRows = 16, kCols = kLanes, kRegisters = kRows * kCols / kLanes;
    constexpr int kLd = kCols + 8;  // four rows of pairs lie in different banks
    const int self = uniform(thread() % 128 / kLanes);
    float* const mine = work + kWarpsOfRows * N + self * kRows * kLd;
    float* const pairs = mine + lane() / 4 * kLd + lane() % 4 * 2;
    const auto place = [](int n) { return n / 2 % 2 * 8 * kLd + n / 4 * 8; };
#pragma unroll
    for (int col = 0; col < N; col += kCols) {
        float* const x = f.x + col / kCols * kRegisters;
#pragma unroll
        for (int n = 0; n < kRegisters; n += 2) store_pair(pairs + place(n), {{x[n], x[n + 1]}});
        __syncwarp();
        float sum = 0.0f;
#pragma unroll 8  // with more at a time, kernels whose registers are all taken spill some
        for (int i = 0; i < kRows; ++i) {
            float* const at = mine + (REVERSE ? kRows - 1 - i : i) * kLd + lane();
            const float before = sum;
            sum += *at;
            *at = EXCLUSIVE ? before : sum;
        }
        work[self * N + col + lane()] = sum;
        __syncwarp();
#pragma unroll
        for (int n = 0; n < kRegisters; n += 2) {
            const pair y = load_pair(pairs + place(n));
            x[n] = y.x[0], x[n + 1] = y.x[1];
        }
        __syncwarp();
    }
    sync();
#pragma unroll 1
    for (int warp = REVERSE ? self + 1 : 0; warp < (REVERSE ? kWarpsOfRows : self); ++warp)
        each<64, N>([&](const Spot& s) { f.put(s, f.at(s) + load_pair(work + warp * N + s.j)); });
    return f;
}

}  // namespace forge::cuda
