/// Vectors of one number per token of a chunk of 64, in the registers of one warp: lane l has tokens 2 l and 2 l + 1.
#pragma once

#include "fragment.h"

namespace forge::cuda {

/// Two numbers on their way from global memory.
template <class T>
struct FetchedPair {
    T x[2];
};

template <class T>
FORGE_DEVICE FetchedPair<T> fetch_pair(const T* src, Size stride, int rows) {
    FetchedPair<T> f;
    if (warp() != 0) return f;
#pragma unroll
    for (int l = 0; l < 2; ++l) {
        const int row = 2 * lane() + l;
        f.x[l] = src[(row < rows ? row : 0) * stride];
    }
    return f;
}

template <class T>
FORGE_DEVICE pair arrived_pair(const FetchedPair<T>& f, int rows, float pad) {
    const int row = 2 * lane();
    return {{row < rows ? to_float(f.x[0]) : pad, row + 1 < rows ? to_float(f.x[1]) : pad}};
}

/// The sum of all numbers up to each one; REVERSE: from the end; EXCLUSIVE: without the number itself. A sum of numbers,
/// never a difference of sums.
template <bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE pair running_sum(const pair& x) {
    const int first = REVERSE ? 1 : 0, self = REVERSE ? kLanes - 1 - lane() : lane();
    const float both = x.x[0] + x.x[1];
    float before = both;  // becomes the sum of this lane's and all before it, then that of all before it
#pragma unroll
    for (int n = 1; n < kLanes; n *= 2) {
        const float other = REVERSE ? __shfl_down_sync(kAllLanes, before, n) : __shfl_up_sync(kAllLanes, before, n);
        if (self >= n) before += other;
    }
    before = REVERSE ? __shfl_down_sync(kAllLanes, before, 1) : __shfl_up_sync(kAllLanes, before, 1);
    if (self == 0) before = 0.0f;
    const float own = x.x[first], middle = before + own;
    pair y;
    y.x[first] = EXCLUSIVE ? before : middle;
    y.x[1 - first] = EXCLUSIVE ? middle : middle + x.x[1 - first];
    return y;
}

/// The sum of all, for every lane.
FORGE_DEVICE pair sum_of(const pair& x) { return broadcast_pair(detail::reduce_lanes<detail::Plus>(x.x[0] + x.x[1])); }

/// A number that all lanes have.
FORGE_DEVICE void store_first(float* dst, const pair& x) {
    if (lane() == 0) *dst = x.x[0];
}

}  // namespace forge::cuda
