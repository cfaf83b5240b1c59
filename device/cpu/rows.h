/// Small movers of rows and vectors that kernels need around the tile functions: vectors of per-token numbers, masks,
/// repeats. Sizes are template parameters, buffers are padded to the vector width; nothing here computes.
#pragma once

#include "io.h"

namespace forge::cpu {

inline float load_number(const float* p) { return *p; }

template <class T>
inline float load_number(const T* p) {
    alignas(64) float one[kWidth];
    load_tile<T, 1, 1, kWidth>(one, p, 0, 1, 1, 0.0f);
    return one[0];
}

/// One number per token: element r at src[r * stride] for r < rows, pad from there to N.
template <class T, int N>
inline void load_vector(float* dst, const T* src, int64_t stride, int rows, float pad) {
    for (int r = 0; r < N; ++r) dst[r] = r < rows ? load_number(src + r * stride) : pad;
}

/// The same one token (`FACTOR` rows) earlier; before the sequence's first token stand `last`'s rows, or the pad.
template <class T, int N, int FACTOR>
inline void load_shifted(float* dst, const T* src, int64_t stride, bool first_chunk, int rows, float pad,
                         const float* last, int64_t last_stride) {
    for (int r = 0; r < N; ++r)
        dst[r] = r >= rows                     ? pad
                 : r >= FACTOR || !first_chunk ? load_number(src + (r - FACTOR) * stride)
                 : last                        ? last[r * last_stride]
                                               : pad;
}

template <class T, int N>
inline void store_vector(T* dst, int64_t stride, const float* src, int rows) {
    for (int r = 0; r < N && r < rows; ++r) {
        alignas(64) float one[kWidth] = {src[r]};
        store_tile<T, 1, 1, kWidth>(dst + r * stride, 0, 1, one, 1);
    }
}

/// 1 for the tokens of the sequence, 0 for padding.
template <int N>
inline void token_mask(float* dst, int rows) {
    for (int r = 0; r < N; ++r) dst[r] = r < rows ? 1.0f : 0.0f;
}

/// Whole padded buffers.
template <int FLOATS>
inline void copy_floats(float* dst, const float* src) {
    std::memcpy(dst, src, FLOATS * sizeof(float));
}

template <int N, int COUNT>
inline void repeat_vector(const float* src, float* dst) {
    for (int i = 0; i < N * COUNT; ++i) dst[i] = src[i / COUNT];
}

/// Each row COUNT times in a row.
template <int M, int N, int LDS, int LDD, int COUNT>
inline void repeat_rows(const float* src, float* dst) {
    for (int i = 0; i < M * COUNT; ++i)
        for (int j = 0; j < N; j += kWidth) store(dst + i * LDD + j, load(src + i / COUNT * LDS + j));
}

template <int M, int N, int LDS, int LDD, int COUNT>
inline void repeat_cols(const float* src, float* dst) {
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N * COUNT; ++j) dst[i * LDD + j] = src[i * LDS + j / COUNT];
}

/// dst[i * STEP_I + j * STEP_J] = src[i, j].
template <int M, int N, int LDS, int STEP_I, int STEP_J>
inline void put_part(const float* src, float* dst) {
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) dst[i * STEP_I + j * STEP_J] = src[i * LDS + j];
}

template <int N>
inline void linear_scan_vector(const float* a, const float* x, float* dst) {
    float h = 0.0f;
    for (int i = 0; i < N; ++i) dst[i] = h = a[i] * h + x[i];
}

/// The same, or, in REVERSE, h[i] = a[i + 1] * h[i + 1] + x[i] from h[N] = 0; EXCLUSIVE: the h that goes into element i.
template <int N, bool REVERSE, bool EXCLUSIVE>
inline void linear_scan_vector(const float* a, const float* x, float* dst) {
    float h = 0.0f;
    for (int n = 0; n < N; ++n) {
        const int i = REVERSE ? N - 1 - n : n;
        const float before = h;
        h = n == 0 ? x[i] : a[REVERSE ? i + 1 : i] * h + x[i];
        dst[i] = EXCLUSIVE ? before : h;
    }
}

}  // namespace forge::cpu
