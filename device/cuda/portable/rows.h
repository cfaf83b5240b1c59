/// Small movers of rows and vectors that kernels need around the tile functions: vectors of per-token numbers, masks,
/// repeats. Sizes are template parameters; nothing here computes.
#pragma once

#include "io.h"

namespace forge::cuda {

/// One number per token: element r at src[r * stride] for r < rows, pad from there to N.
template <class T, int N>
FORGE_DEVICE void load_vector(float* dst, const T* src, Size stride, int rows, float pad) {
    place_vector<T, N>(dst, fetch_vector<T, N>(src, stride, rows), rows, pad);
}

/// The same one token (`FACTOR` rows) earlier; before the sequence's first token stand `last`'s rows, or the pad.
template <class T, int N, int FACTOR>
FORGE_DEVICE void load_shifted(float* dst, const T* src, Size stride, bool first_chunk, int rows, float pad,
                               const float* last, Size last_stride) {
    for (int r = thread(); r < N; r += kThreads)
        dst[r] = r >= rows                     ? pad
                 : r >= FACTOR || !first_chunk ? load_number(src + (r - FACTOR) * stride)
                 : last                        ? last[r * last_stride]
                                               : pad;
}

template <class T, int N>
FORGE_DEVICE void store_vector(T* dst, Size stride, const float* src, int rows) {
    for (int r = thread(); r < N; r += kThreads)
        if (r < rows) dst[r * stride] = from_float<T>(src[r]);
}

/// 1 for the tokens of the sequence, 0 for padding.
template <int N>
FORGE_DEVICE void token_mask(float* dst, int rows) {
    for (int r = thread(); r < N; r += kThreads) dst[r] = r < rows ? 1.0f : 0.0f;
}

/// The identity matrix.
template <int N, int LD>
FORGE_DEVICE void fill_identity(float* dst) {
    for (int n = thread(); n < N * vectors(N); n += kThreads) {
        const int row = n / vectors(N), col = n % vectors(N) * kWidth;
        store(dst + row * LD + col, eye(row, col));
    }
}

template <int N, int COUNT>
FORGE_DEVICE void repeat_vector(const float* src, float* dst) {
    for (int i = thread(); i < N * COUNT; i += kThreads) dst[i] = src[i / COUNT];
}

/// Each row COUNT times in a row.
template <int M, int N, int LDS, int LDD, int COUNT>
FORGE_DEVICE void repeat_rows(const float* src, float* dst) {
    for (int n = thread(); n < M * COUNT * N; n += kThreads)
        dst[n / N * LDD + n % N] = src[n / N / COUNT * LDS + n % N];
}

template <int M, int N, int LDS, int LDD, int COUNT>
FORGE_DEVICE void repeat_cols(const float* src, float* dst) {
    for (int n = thread(); n < M * N * COUNT; n += kThreads) {
        const int row = n / (N * COUNT), col = n % (N * COUNT);
        dst[row * LDD + col] = src[row * LDS + col / COUNT];
    }
}

/// dst[i * STEP_I + j * STEP_J] = src[i, j].
template <int M, int N, int LDS, int STEP_I, int STEP_J>
FORGE_DEVICE void put_part(const float* src, float* dst) {
    for (int n = thread(); n < M * N; n += kThreads) dst[n / N * STEP_I + n % N * STEP_J] = src[n / N * LDS + n % N];
}

/// dst[N, M] = src[M, N] transposed.
template <int M, int N, int LDS, int LDD>
FORGE_DEVICE void transpose(const float* src, float* dst) {
    for (int n = thread(); n < M * N; n += kThreads) dst[n % N * LDD + n / N] = src[n / N * LDS + n % N];
}

}  // namespace forge::cuda
