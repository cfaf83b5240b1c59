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

template <class Op, int M, int N, class F>
FORGE_DEVICE void reduce_columns(float* to, float* work, F f) {
    constexpr int kOwn = N / 4;  // columns of this thread
    float own[kOwn];
#pragma unroll
    for (float& x : own) x = Op::nothing();
    each<M, N>([&](const Spot& s) {
        const pair x = f(s);
        const int n = s.index % (N / 2) / 4 * 2;
        own[n] = Op::of(own[n], x.x[0]);
        own[n + 1] = Op::of(own[n + 1], x.x[1]);
    });
    // Of two lanes each keeps half of the columns that both have, until each has an eighth.
    int first = 0;
#pragma unroll
    for (int bit = 4, left = kOwn / 2; bit < kLanes; bit *= 2, left /= 2) {
        const bool upper = lane() & bit;
        first += upper ? left : 0;
#pragma unroll
        for (int n = 0; n < left; ++n) {
            const float kept = upper ? own[n + left] : own[n], given = upper ? own[n] : own[n + left];
            own[n] = Op::of(kept, __shfl_xor_sync(kAllLanes, given, bit));
        }
    }
    float* const of_warp = work + thread() % 128 / kLanes * N + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kOwn / 8; ++n) of_warp[(first + n) / 2 * 8 + (first + n) % 2] = own[n];
    sync();
    for (int j = thread(); j < N; j += kThreads)
        to[j] = Op::of(Op::of(work[j], work[N + j]), Op::of(work[2 * N + j], work[3 * N + j]));
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

/// sums[j] = the sum of column j; `work`: 4 * N floats.
template <int M, int N, class F>
FORGE_DEVICE void sum_columns(float* sums, float* work, F f) {
    detail::reduce_columns<detail::Plus, M, N>(sums, work, f);
}
template <int M, int N, class F>
FORGE_DEVICE void greatest_of_columns(float* greatest, float* work, F f) {
    detail::reduce_columns<detail::Larger, M, N>(greatest, work, f);
}

namespace detail {

/// The running sum over a warp's lanes that hold the same columns, each a row; `all`: its end.
template <bool REVERSE>
FORGE_DEVICE float running_sum_of_lanes(float x, float& all) {
    const int row = REVERSE ? 7 - lane() / 4 : lane() / 4;
#pragma unroll
    for (int rows = 1; rows < 8; rows *= 2) {
        const float before =
            REVERSE ? __shfl_down_sync(kAllLanes, x, 4 * rows) : __shfl_up_sync(kAllLanes, x, 4 * rows);
        if (row >= rows) x += before;
    }
    all = __shfl_sync(kAllLanes, x, (REVERSE ? 0 : 28) + lane() % 4);
    return x;
}

/// The running sum of the lane before, 0 for the first.
template <bool REVERSE>
FORGE_DEVICE float sum_before(float x) {
    const float before = REVERSE ? __shfl_down_sync(kAllLanes, x, 4) : __shfl_up_sync(kAllLanes, x, 4);
    return lane() / 4 == (REVERSE ? 7 : 0) ? 0.0f : before;
}

}  // namespace detail

/// f[i, j] = f[0, j] + … + f[i, j]; EXCLUSIVE: up to f[i - 1, j]; REVERSE: from the last row on. `work`: 4 * N floats.
template <bool REVERSE, bool EXCLUSIVE, int N>
FORGE_DEVICE Fragment<64, N> running_sums(Fragment<64, N> f, float* work) {
    constexpr int kWarpsOfRows = 4, kRegisters = Fragment<64, N>::kRegisters, kAtOnce = 16;
    const int self = uniform(thread() % 128 / kLanes);
    // A loop of short text over 32 columns at a time: they are the fragment's first, and become its last.
#pragma unroll 1
    for (int col = 0; col < N; col += 2 * kAtOnce) {
        float y[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {  // register n: of 8 rows; n + 2: of the 8 after them
            if (n % 4 >= 2) continue;
            const int first = REVERSE ? n + 2 : n, second = REVERSE ? n : n + 2;
            float halves[2];
            const float a = detail::running_sum_of_lanes<REVERSE>(f.x[first], halves[0]),
                        b = detail::running_sum_of_lanes<REVERSE>(f.x[second], halves[1]);
            y[first] = EXCLUSIVE ? detail::sum_before<REVERSE>(a) : a;
            y[second] = halves[0] + (EXCLUSIVE ? detail::sum_before<REVERSE>(b) : b);
            if (lane() / 4 == 0) work[self * N + col + n / 4 * 8 + lane() % 4 * 2 + n % 2] = halves[0] + halves[1];
        }
#pragma unroll
        for (int n = 0; n < kRegisters; ++n)
            f.x[n] = n + kAtOnce < kRegisters ? f.x[n + kAtOnce] : y[n + kAtOnce - kRegisters];
    }
    sync();
#pragma unroll 1
    for (int warp = REVERSE ? self + 1 : 0; warp < (REVERSE ? kWarpsOfRows : self); ++warp)
        each<64, N>([&](const Spot& s) { f.put(s, f.at(s) + load_pair(work + warp * N + s.j)); });
    return f;
}

}  // namespace forge::cuda
