/// Vectors of one number per token of a chunk of 64, in the registers of one warp: lane l has tokens 2 l and 2 l + 1.
#pragma once

#include "fragment.h"

namespace forge::cuda {

/// Starts asynchronous copies of the numbers of `rows` tokens, the sequence's last ones if `ends`, to the 64 words at
/// `words`. Called by one warp; a lane may read its own two once its copies have completed.
template <class T>
FORGE_DEVICE void start_vector(float* words, const T* src, Size stride, int rows, bool ends) {
    if (warp() != 0) return;
#pragma unroll
    for (int l = 0; l < 2; ++l) {
        const int row = 2 * lane() + l;
        if (row >= rows) continue;
        const T* const number = src + row * stride;
        const Size address = reinterpret_cast<Size>(number),
                   word = address / 4 * 4;  // copies move the word that it lies in …
        const bool whole = sizeof(T) == 4 || word != address || !ends || row + 1 < rows;
        if (whole) ptx::copy_4(ptx::shared_address(words + row), reinterpret_cast<const void*>(word), 4);
        else *reinterpret_cast<T*>(words + row) = *number;  // … whose second half may lie beyond the tensor
    }
}

namespace detail {

template <class T>
FORGE_DEVICE float number_in_word(const float* word, const T* src) {
    if constexpr (sizeof(T) == 4) return *word;
    else return to_float(reinterpret_cast<const T*>(word)[reinterpret_cast<Size>(src) / 2 % 2]);
}

}  // namespace detail

/// This lane's two of them, `pad` for tokens from `rows` on.
template <class T>
FORGE_DEVICE pair arrived_pair(const float* words, const T* src, Size stride, int rows, float pad) {
    pair x;
#pragma unroll
    for (int l = 0; l < 2; ++l) {
        const int row = 2 * lane() + l;
        x.x[l] = row < rows ? detail::number_in_word(words + row, src + row * stride) : pad;
    }
    return x;
}

/// This lane's two of the numbers of `rows` tokens, from where they lie; `pad` for tokens from `rows` on.
template <class T>
FORGE_DEVICE pair token_pair(const T* src, Size stride, int rows, float pad) {
    pair x;
#pragma unroll
    for (int l = 0; l < 2; ++l) x.x[l] = 2 * lane() + l < rows ? to_float(src[(2 * lane() + l) * stride]) : pad;
    return x;
}

/// 1 for valid tokens, 0 from `rows` on.
FORGE_DEVICE pair mask_pair(int rows) {
    return {{2 * lane() < rows ? 1.0f : 0.0f, 2 * lane() + 1 < rows ? 1.0f : 0.0f}};
}

/// The sum of all numbers up to each one; REVERSE: from the end; EXCLUSIVE: without the number itself. A sum of
/// numbers, never a difference of sums.
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

/// The greatest of all, for every lane.
FORGE_DEVICE pair greatest_of(const pair& x) {
    return broadcast_pair(detail::reduce_lanes<detail::Larger>(scalar::maximum(x.x[0], x.x[1])));
}

/// h[i] = decay[i] h[i - 1] + x[i], from h[-1] = 0; REVERSE: h[i] = decay[i + 1] h[i + 1] + x[i], from h[64] = 0;
/// EXCLUSIVE: the h that goes into each number.
template <bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE pair running_map(const pair& decay, const pair& x) {
    const int first = REVERSE ? 1 : 0, self = REVERSE ? kLanes - 1 - lane() : lane();
    const auto of_lane_before = [](float y, int n) {
        return REVERSE ? __shfl_down_sync(kAllLanes, y, n) : __shfl_up_sync(kAllLanes, y, n);
    };
    // Of the h before this lane, and of this lane's first.
    const float into_first = REVERSE ? of_lane_before(decay.x[0], 1) : decay.x[0], into_second = decay.x[1];
    float factor = into_first * into_second,
          addend = into_second * x.x[first] + x.x[1 - first];  // become those of all lanes up to this one
#pragma unroll
    for (int n = 1; n < kLanes; n *= 2) {
        const float factor_before = of_lane_before(factor, n), addend_before = of_lane_before(addend, n);
        if (self >= n) addend += factor * addend_before, factor *= factor_before;
    }
    float before = of_lane_before(addend, 1);
    if (self == 0) before = 0.0f;
    const float middle = into_first * before + x.x[first];
    pair h;
    h.x[first] = EXCLUSIVE ? before : middle;
    h.x[1 - first] = EXCLUSIVE ? middle : into_second * middle + x.x[1 - first];
    return h;
}

/// A number that all lanes have.
FORGE_DEVICE void store_first(float* dst, const pair& x) {
    if (lane() == 0) *dst = x.x[0];
}

}  // namespace forge::cuda
