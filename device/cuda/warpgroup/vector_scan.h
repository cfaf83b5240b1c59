/// Numbers and vectors of N numbers between global memory and the threads that hold them: the two from the `j`th on, or
/// a number for every thread.
#pragma once

#include "fragment.h"

namespace forge::cuda {

/// As another kernel left them; zeros behind the end.
template <int N>
FORGE_DEVICE pair spilled_pair(const float* spill, int j) {
    if constexpr (N == 1) return broadcast_pair(*spill);
    else return j < N ? load_pair(spill + j) : broadcast_pair(0.0f);
}

/// For another kernel; a number by one thread.
template <int N>
FORGE_DEVICE void store_spilled(float* spill, int j, const pair& x) {
    if constexpr (N == 1) {
        if (j == 0) *spill = x.x[0];
    } else {
        if (j < N) store_pair(spill + j, x);
    }
}

/// Of a state, of which there are `valid` numbers; zeros where there is none.
template <int N, class T>
FORGE_DEVICE pair state_pair(const T* state, Size stride, int j, int valid = N) {
    pair x = broadcast_pair(0.0f);
    if (!state) return x;
    if constexpr (N == 1) return broadcast_pair(to_float(*state));
#pragma unroll
    for (int l = 0; l < 2; ++l)
        if (j + l < valid) x.x[l] = to_float(state[(j + l) * stride]);
    return x;
}

template <int N, class T>
FORGE_DEVICE void store_state_pair(T* state, Size stride, int j, const pair& x, int valid = N) {
    if constexpr (N == 1) {
        if (j == 0) *state = from_float<T>(x.x[0]);
    } else {
#pragma unroll
        for (int l = 0; l < 2; ++l)
            if (j + l < valid) state[(j + l) * stride] = from_float<T>(x.x[l]);
    }
}

}  // namespace forge::cuda
