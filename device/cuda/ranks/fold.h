/// The summaries of a rank's segments as one, S -> D∘S + B after S -> D'∘S + B' and so on: a thread has a number of a
/// state, or four, in all segments. Where transitions are matrices, a block of threads has some columns of a state, or
/// of the product of all transitions, and multiplies them by one after the other.
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

/// A matrix state as its transition multiplies it from the left, [n, others]: for one that multiplies from the right
/// everything is transposed.
struct Turned {
    int n, others;
    Size from_row, from_column;  ///< strides of B
    Size to_row, to_column;      ///< of dense states
    Size map_row, map_column;    ///< of D
    __device__ explicit Turned(const Fold& f) {
        const int k = f.map_kind == kLeft ? 0 : 1, c = 1 - k;
        n = f.shape[k], others = f.shape[c];
        from_row = f.stride[k], from_column = f.stride[c];
        to_row = k == 0 ? others : 1, to_column = k == 0 ? 1 : n;
        map_row = f.map_stride[k], map_column = f.map_stride[c];
    }
};

/// next = D now + B, of some columns. A thread has every eighth row of one column, four at a time.
__device__ __forceinline__ void multiply_columns(const Turned& m, const float* map, const float* added, int width,
                                                 const float* now, float* next) {
    constexpr int kStep = kThreads / kColumns, kRows = 4;
    const int c = static_cast<int>(threadIdx.x) % kColumns;
    for (int first = static_cast<int>(threadIdx.x) / kColumns; first < m.n; first += kStep * kRows) {
        float sum[kRows];
        for (int r = 0; r < kRows; ++r) {
            const int row = first + r * kStep;
            sum[r] = added && row < m.n && c < width ? __ldcg(added + row * m.from_row + c * m.from_column) : 0;
        }
#pragma unroll 4
        for (int j = 0; j < m.n; ++j) {
            const float x = now[j * kColumns + c];
            for (int r = 0; r < kRows; ++r) {
                const int row = first + r * kStep < m.n ? first + r * kStep : 0;
                sum[r] = fmaf(__ldcg(map + row * m.map_row + j * m.map_column), x, sum[r]);
            }
        }
        for (int r = 0; r < kRows; ++r)
            if (first + r * kStep < m.n) next[(first + r * kStep) * kColumns + c] = sum[r];
    }
    __syncthreads();
}

/// A unit: kColumns columns of a lane's state or, after those, of its transition.
__device__ __forceinline__ void fold_columns(const Fold& f, const Turned& m, Size lane, int unit) {
    const int of_state = (m.others + kColumns - 1) / kColumns, state = unit < of_state;
    const int column = (state ? unit : unit - of_state) * kColumns, all = state ? m.others : m.n;
    const int width = all - column < kColumns ? all - column : kColumns;
    float* now = static_cast<float*>(ptx::block_memory());
    float* next = now + m.n * kColumns;
    const float* begun = state && f.begun ? f.begun + lane * f.block : nullptr;
    for (int i = static_cast<int>(threadIdx.x); i < m.n * kColumns; i += kThreads) {
        const int row = i / kColumns, c = column + i % kColumns;
        const bool there = i % kColumns < width;
        now[i] = !there   ? 0.0F
                 : !state ? (row == c ? 1.0F : 0.0F)
                 : begun  ? begun[row * m.to_row + c * m.to_column]
                          : 0.0F;
    }
    __syncthreads();
    for (Size s = 0; s < f.count; ++s) {
        const Size block = first_of(f, lane) + s * f.heads;
        const float* added = state ? f.added + block * f.added_block + column * m.from_column : nullptr;
        multiply_columns(m, f.map + block * f.map_block, added, width, now, next);
        float* const last = now;
        now = next, next = last;
    }
    float* to = state ? f.state + lane * f.block : f.transition + lane * f.map_size;
    const Size rows = state                 ? m.to_row
                      : f.map_kind == kLeft ? m.n
                                            : 1,
               columns = state                 ? m.to_column
                         : f.map_kind == kLeft ? 1
                                               : m.n;
    for (int i = static_cast<int>(threadIdx.x); i < m.n * kColumns; i += kThreads)
        if (i % kColumns < width) to[i / kColumns * rows + (column + i % kColumns) * columns] = now[i];
    __syncthreads();
}

__device__ __forceinline__ void fold_matrices(const Fold& f) {
    const Turned m(f);
    const int units = (m.others + kColumns - 1) / kColumns + (f.transition ? (m.n + kColumns - 1) / kColumns : 0);
    for (Size task = blockIdx.x; task < f.lanes * units; task += gridDim.x)
        fold_columns(f, m, task / units, static_cast<int>(task % units));
}

__device__ __forceinline__ void fold(const Fold& f) {
    if (f.map_kind == kLeft || f.map_kind == kRight) {
        fold_matrices(f);
        return;
    }
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
extern "C" __global__ __launch_bounds__(forge::cuda::ranks::kThreads) void forge_fold(
    const __grid_constant__ forge::cuda::ranks::Fold fold) {
    forge::cuda::ranks::fold(fold);
}
// NOLINTEND
