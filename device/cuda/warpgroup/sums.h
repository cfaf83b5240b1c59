/// Sums over the rows or the columns of what a warp group evaluates at the spots of an M x N fragment, into a vector of
/// floats. The order of the terms is fixed.
#pragma once

#include "fragment.h"

namespace forge::cuda {

namespace detail {

/// The sum over lanes whose numbers differ in the bits FROM, 2 FROM, … below TO.
template <int FROM, int TO>
FORGE_DEVICE float sum_of_lanes(float x) {
#pragma unroll
    for (int bit = FROM; bit < TO; bit *= 2) x += __shfl_xor_sync(kAllLanes, x, bit);
    return x;
}

}  // namespace detail

/// sums[i] = the sum of row i.
template <int M, int N, class F>
FORGE_DEVICE void sum_rows(float* sums, F f) {
    constexpr int kOwn = M / 32;  // rows of this thread
    float own[kOwn] = {};
    each<M, N>([&](const Spot& s) {
        const pair x = f(s);
        own[s.index / (N / 2) * 2 + s.index / 2 % 2] += x.x[0] + x.x[1];
    });
    const int row = thread() % 128 / kLanes * 16 + lane() / 4;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
        const float sum = detail::sum_of_lanes<1, 4>(own[n]);
        if (lane() % 4 == 0) sums[n / 2 * 64 + row + n % 2 * 8] = sum;
    }
}

/// sums[j] = the sum of column j; `work`: 4 * N floats.
template <int M, int N, class F>
FORGE_DEVICE void sum_columns(float* sums, float* work, F f) {
    constexpr int kOwn = N / 4;  // columns of this thread
    float own[kOwn] = {};
    each<M, N>([&](const Spot& s) {
        const pair x = f(s);
        const int n = s.index % (N / 2) / 4 * 2;
        own[n] += x.x[0];
        own[n + 1] += x.x[1];
    });
    float* const of_warp = work + thread() % 128 / kLanes * N + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
        const float sum = detail::sum_of_lanes<4, kLanes>(own[n]);
        if (lane() / 4 == 0) of_warp[n / 2 * 8 + n % 2] = sum;
    }
    sync();
    for (int j = thread(); j < N; j += kThreads)
        sums[j] = (work[j] + work[N + j]) + (work[2 * N + j] + work[3 * N + j]);
}

}  // namespace forge::cuda
