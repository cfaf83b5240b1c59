/// Between global memory and tiles: element types, their conversions, loads and stores of partial tiles.
///
/// Global matrices have any strides and hold float, bf16 or f16; tiles are row-major float in shared memory with row
/// stride LD. Only valid elements of global memory are touched: `rows` rows of exactly N elements each. Threads move four
/// elements at a time where strides and addresses allow it, else one. Rounding is to nearest even; f16 overflows to inf.
#pragma once

#include "../ptx/convert.h"
#include "vec.h"

namespace forge::cuda {

using device::Size;

struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};

FORGE_DEVICE float to_float(float x) { return x; }
FORGE_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
FORGE_DEVICE float to_float(f16 x) { return ptx::float_from_f16(x.bits); }

template <class T>
FORGE_DEVICE T from_float(float x);
template <>
FORGE_DEVICE float from_float<float>(float x) {
    return x;
}
template <>
FORGE_DEVICE bf16 from_float<bf16>(float x) {
    return {ptx::bf16_from_float(x)};
}
template <>
FORGE_DEVICE f16 from_float<f16>(float x) {
    return {ptx::f16_from_float(x)};
}

namespace detail {

/// How many loads a thread has in flight before it uses the first.
constexpr int kBatch = 8;

template <class T>
struct alignas(kWidth * sizeof(T)) Four {
    T x[kWidth];
};

/// Whether rows begin at addresses at which four elements can be moved at once.
template <class T>
FORGE_DEVICE bool in_fours(const T* p, Size row_stride, Size col_stride) {
    constexpr Size kBytes = kWidth * sizeof(T);
    return col_stride == 1 && reinterpret_cast<Size>(p) % kBytes == 0 && row_stride % kWidth == 0;
}

template <class T>
FORGE_DEVICE vec load_four(const T* p) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(p);
    return {{to_float(four.x[0]), to_float(four.x[1]), to_float(four.x[2]), to_float(four.x[3])}};
}

template <class T>
FORGE_DEVICE void store_four(T* p, const vec& v) {
    *reinterpret_cast<Four<T>*>(p) = {{from_float<T>(v.x[0]), from_float<T>(v.x[1]), from_float<T>(v.x[2]), from_float<T>(v.x[3])}};
}

/// from(n) for all n < COUNT, n shared out over the threads, into to(n, value): loads go ahead of stores in batches.
template <int COUNT, class From, class To>
FORGE_DEVICE void move(From from, To to) {
    constexpr int kSteps = pieces(COUNT, kThreads), kGroup = min(kSteps, kBatch);
    for (int step = 0; step < kSteps; step += kGroup) {
        vec x[kGroup];
#pragma unroll
        for (int s = 0; s < kGroup; ++s) {
            const int n = (step + s) * kThreads + thread();
            if (n < COUNT) x[s] = from(n);
        }
#pragma unroll
        for (int s = 0; s < kGroup; ++s) {
            const int n = (step + s) * kThreads + thread();
            if (n < COUNT) to(n, x[s]);
        }
    }
}

}  // namespace detail

FORGE_DEVICE float load_number(const float* p) { return *p; }
template <class T>
FORGE_DEVICE float load_number(const T* p) {
    return to_float(*p);
}

template <int N>
FORGE_DEVICE void fill(float* x, float value) {
    for (int n = thread(); n < vectors(N); n += kThreads) store(x + n * kWidth, broadcast(value));
}

/// Whole padded buffers.
template <int FLOATS>
FORGE_DEVICE void copy_floats(float* dst, const float* src) {
    detail::move<vectors(FLOATS)>([&](int n) { return load(src + n * kWidth); }, [&](int n, const vec& x) { store(dst + n * kWidth, x); });
}

/// Exactly N columns of each row.
template <int M, int N, int LDD, int LDS>
FORGE_DEVICE void copy_tile(float* dst, const float* src) {
    if constexpr (N % kWidth == 0) {
        constexpr int kRow = N / kWidth;
        detail::move<M * kRow>([&](int n) { return load(src + n / kRow * LDS + n % kRow * kWidth); },
                               [&](int n, const vec& x) { store(dst + n / kRow * LDD + n % kRow * kWidth, x); });
    } else {
        for (int n = thread(); n < M * N; n += kThreads) dst[n / N * LDD + n % N] = src[n / N * LDS + n % N];
    }
}

/// tile[r, c] = src[r * row_stride + c * col_stride] for r < rows; rows from there to M hold `pad`.
template <class T, int M, int N, int LD>
FORGE_DEVICE void load_tile(float* tile, const T* src, Size row_stride, Size col_stride, int rows, float pad) {
    if (N % kWidth == 0 && detail::in_fours(src, row_stride, col_stride)) {
        constexpr int kRow = vectors(N);
        detail::move<M * kRow>(
            [&](int n) { return n / kRow < rows ? detail::load_four(src + n / kRow * row_stride + n % kRow * kWidth) : broadcast(pad); },
            [&](int n, const vec& x) { store(tile + n / kRow * LD + n % kRow * kWidth, x); });
    } else {
        for (int n = thread(); n < M * N; n += kThreads)
            tile[n / N * LD + n % N] = n / N < rows ? load_number(src + n / N * row_stride + n % N * col_stride) : pad;
    }
}

/// dst[r * row_stride + c * col_stride] = tile[r, c] for r < rows.
template <class T, int M, int N, int LD>
FORGE_DEVICE void store_tile(T* dst, Size row_stride, Size col_stride, const float* tile, int rows) {
    if (N % kWidth == 0 && detail::in_fours(dst, row_stride, col_stride)) {
        constexpr int kRow = vectors(N);
        for (int n = thread(); n < M * kRow; n += kThreads)
            if (n / kRow < rows) detail::store_four(dst + n / kRow * row_stride + n % kRow * kWidth, load(tile + n / kRow * LD + n % kRow * kWidth));
    } else {
        for (int n = thread(); n < M * N; n += kThreads)
            if (n / N < rows) dst[n / N * row_stride + n % N * col_stride] = from_float<T>(tile[n / N * LD + n % N]);
    }
}

}  // namespace forge::cuda
