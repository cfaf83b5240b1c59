/// The summaries of a rank's segments as one, S -> D∘S + B after S -> D'∘S + B' and so on: a thread has a number of a
/// state, or four, in all segments. Transitions are factors.
#pragma once

#include "call.h"
#ifdef __CUDACC__
#include "../ptx/thread.h"
#endif

namespace forge::cuda::ranks {

/// Where number `i` of a dense tensor lies, along the same axes with other strides.
__device__ __forceinline__ Size place_of(Size i, int axes, const int* shape, const Size* strides) {
    Size at = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
        const Size size = shape[axis], rest = i / size;
        at += (i - rest * size) * strides[axis];
        i = rest;
    }
    return at;
}

__device__ __forceinline__ Size first_of(const Fold& f, Size lane) {
    const Size n = lane / f.heads;
    return (f.first + n * f.count) * f.heads + (lane - n * f.heads);
}

__device__ __forceinline__ void fold_four(const Fold& f, Size i) {
    const Size lane = i / f.block, within = i - lane * f.block, block = first_of(f, lane);
    const float* added = f.added + block * f.added_block + place_of(within, f.axes, f.shape, f.stride);
    const float* map = f.map ? f.map + block * f.map_block + place_of(within, f.axes, f.shape, f.step) : nullptr;
    const Size next = f.map ? f.step[f.axes - 1] : 0;
    float4 sum = f.begun ? *reinterpret_cast<const float4*>(f.begun + i) : float4{0, 0, 0, 0};
#pragma unroll 4
    for (Size s = 0; s < f.count; ++s) {
        const float4 b = __ldcg(reinterpret_cast<const float4*>(added + s * f.heads * f.added_block));
        float d[4] = {1, 1, 1, 1};
        if (map)
            for (int j = 0; j < 4; ++j) d[j] = __ldcg(map + s * f.heads * f.map_block + j * next);
        sum = {fmaf(d[0], sum.x, b.x), fmaf(d[1], sum.y, b.y), fmaf(d[2], sum.z, b.z), fmaf(d[3], sum.w, b.w)};
    }
    *reinterpret_cast<float4*>(f.state + i) = sum;
}

__device__ __forceinline__ void fold_one(const Fold& f, Size i) {
    const Size lane = i / f.block, within = i - lane * f.block, block = first_of(f, lane);
    const float* added = f.added + block * f.added_block + place_of(within, f.axes, f.shape, f.stride);
    const float* map = f.map ? f.map + block * f.map_block + place_of(within, f.axes, f.shape, f.step) : nullptr;
    float sum = f.begun ? f.begun[i] : 0;
    for (Size s = 0; s < f.count; ++s)
        sum = fmaf(map ? __ldcg(map + s * f.heads * f.map_block) : 1, sum, __ldcg(added + s * f.heads * f.added_block));
    f.state[i] = sum;
}

__device__ __forceinline__ void fold_transition(const Fold& f, Size i) {
    const Size lane = i / f.map_size;
    const float* map = f.map + first_of(f, lane) * f.map_block +
                       place_of(i - lane * f.map_size, f.map_axes, f.map_shape, f.map_stride);
    float product = 1;
    for (Size s = 0; s < f.count; ++s) product *= __ldcg(map + s * f.heads * f.map_block);
    f.transition[i] = product;
}

__device__ __forceinline__ void fold(const Fold& f) {
    const Size first = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x,
               threads = static_cast<Size>(gridDim.x) * kThreads, all = f.lanes * f.block;
    if (f.four)
        for (Size i = 4 * first; i < all; i += 4 * threads) fold_four(f, i);
    else
        for (Size i = first; i < all; i += threads) fold_one(f, i);
    for (Size i = first; f.transition && i < f.lanes * f.map_size; i += threads) fold_transition(f, i);
}

}  // namespace forge::cuda::ranks

// NOLINTBEGIN: a kernel, which one source includes
extern "C" __global__ void forge_fold(const __grid_constant__ forge::cuda::ranks::Fold fold) {
    forge::cuda::ranks::fold(fold);
}
// NOLINTEND
