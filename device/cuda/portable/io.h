/// Between global memory and tiles: element types, their conversions, loads and stores of partial tiles.
///
/// Global matrices have any strides and hold float, bf16 or f16; tiles are row-major float in shared memory with row
/// stride LD. Only valid elements of global memory are touched: `rows` rows of exactly N elements each. Threads move
/// four elements at a time where strides and addresses allow it, else one. Rounding is to nearest even; f16 overflows
/// to inf.
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
FORGE_DEVICE Four<T> load_four(const T* p) {
    return *reinterpret_cast<const Four<T>*>(p);
}

template <class T>
FORGE_DEVICE vec to_vec(const Four<T>& four) {
    return {{to_float(four.x[0]), to_float(four.x[1]), to_float(four.x[2]), to_float(four.x[3])}};
}

template <class T>
FORGE_DEVICE void store_four(T* p, const vec& v) {
    *reinterpret_cast<Four<T>*>(p) = {
        {from_float<T>(v.x[0]), from_float<T>(v.x[1]), from_float<T>(v.x[2]), from_float<T>(v.x[3])}};
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

/// A tile that is being loaded from global memory: registers of this thread, whose loads it has not waited for yet.
/// Rows of other lengths or at other addresses than fours are left to place_tile.
template <class T, int M, int N>
struct Fetched {
    static constexpr int kRow = vectors(N), kSteps = pieces(M * kRow, kThreads);
    detail::Four<T> x[kSteps];
    bool fours;
};

/// Asks for `rows` rows of exactly N elements each.
template <class T, int M, int N>
FORGE_DEVICE Fetched<T, M, N> fetch_tile(const T* src, Size row_stride, Size col_stride, int rows) {
    using F = Fetched<T, M, N>;
    F fetched;
    fetched.fours = N % kWidth == 0 && detail::in_fours(src, row_stride, col_stride);
    if (!fetched.fours || rows <= 0) return fetched;
    const int self = thread();
#pragma unroll
    for (int s = 0; s < F::kSteps;
         ++s) {  // rows beyond the last are asked for as the first: no branch, all loads in flight at once
        const int n = s * kThreads + self, row = n / F::kRow;
        fetched.x[s] = detail::load_four(src + (row < rows && row < M ? row : 0) * row_stride + n % F::kRow * kWidth);
    }
    return fetched;
}

/// tile[r, c] = src[r * row_stride + c * col_stride] for r < rows; rows from there to M hold `pad`.
template <int LD, class T, int M, int N>
FORGE_DEVICE void place_tile(float* tile, const Fetched<T, M, N>& fetched, const T* src, Size row_stride,
                             Size col_stride, int rows, float pad) {
    using F = Fetched<T, M, N>;
    const int self = thread();
    if (fetched.fours) {
#pragma unroll
        for (int s = 0; s < F::kSteps; ++s) {
            const int n = s * kThreads + self, row = n / F::kRow;
            if (n < M * F::kRow)
                store(tile + row * LD + n % F::kRow * kWidth,
                      row < rows ? detail::to_vec(fetched.x[s]) : broadcast(pad));
        }
    } else {
        for (int n = thread(); n < M * N; n += kThreads)
            tile[n / N * LD + n % N] = n / N < rows ? load_number(src + n / N * row_stride + n % N * col_stride) : pad;
    }
}

/// Both at once, in parts that leave registers for others.
template <class T, int M, int N, int LD>
FORGE_DEVICE void load_tile(float* tile, const T* src, Size row_stride, Size col_stride, int rows, float pad) {
    constexpr int kPart = min(M, max(1, 8 * kThreads / vectors(N)));  // rows: eight loads per thread
#pragma unroll(M / kPart > 2 ? 1 : 2)  // wide tiles have many parts, and the compiler's time is that of its text
    for (int row = 0; row + kPart <= M; row += kPart) {
        const T* const part = src + row * row_stride;
        place_tile<LD>(tile + row * LD, fetch_tile<T, kPart, N>(part, row_stride, col_stride, rows - row), part,
                       row_stride, col_stride, rows - row, pad);
    }
    if constexpr (M % kPart > 0) {
        constexpr int kRow = M / kPart * kPart;
        const T* const part = src + kRow * row_stride;
        place_tile<LD>(tile + kRow * LD, fetch_tile<T, M - kRow, N>(part, row_stride, col_stride, rows - kRow), part,
                       row_stride, col_stride, rows - kRow, pad);
    }
}

/// A vector on its way, likewise.
template <class T, int N>
struct FetchedVector {
    T x[pieces(N, kThreads)];
};

template <class T, int N>
FORGE_DEVICE FetchedVector<T, N> fetch_vector(const T* src, Size stride, int rows) {
    FetchedVector<T, N> fetched;
    if (rows <= 0) return fetched;
    const int self = thread();
#pragma unroll
    for (int s = 0; s < pieces(N, kThreads); ++s) {
        const int r = s * kThreads + self;
        fetched.x[s] = src[(r < rows && r < N ? r : 0) * stride];
    }
    return fetched;
}

template <class T, int N>
FORGE_DEVICE void place_vector(float* dst, const FetchedVector<T, N>& fetched, int rows, float pad) {
    const int self = thread();
#pragma unroll
    for (int s = 0; s < pieces(N, kThreads); ++s) {
        const int r = s * kThreads + self;
        if (r < N) dst[r] = r < rows ? to_float(fetched.x[s]) : pad;
    }
}

/// Whole padded buffers.
template <int FLOATS>
FORGE_DEVICE void copy_floats(float* dst, const float* src) {
    if constexpr (FLOATS <= kThreads) {
        const int self = thread();
        if (self < FLOATS) dst[self] = src[self];
        return;
    }
    constexpr int kPart = min(FLOATS, 8 * kThreads * kWidth), kRest = FLOATS % kPart;
    for (int i = 0; i + kPart <= FLOATS; i += kPart)
        load_tile<float, 1, kPart, kPart>(dst + i, src + i, kPart, 1, 1, 0.0f);
    if constexpr (kRest > 0)
        load_tile<float, 1, kRest, kRest>(dst + FLOATS - kRest, src + FLOATS - kRest, kRest, 1, 1, 0.0f);
}

/// Exactly N columns of each row.
template <int M, int N, int LDD, int LDS>
FORGE_DEVICE void copy_tile(float* dst, const float* src) {
    load_tile<float, M, N, LDD>(dst, src, LDS, 1, M, 0.0f);
}

/// dst[r * row_stride + c * col_stride] = tile[r, c] for r < rows.
template <class T, int M, int N, int LD>
FORGE_DEVICE void store_tile(T* dst, Size row_stride, Size col_stride, const float* tile, int rows) {
    if (N % kWidth == 0 && detail::in_fours(dst, row_stride, col_stride)) {
        constexpr int kRow = vectors(N);
        for (int n = thread(); n < M * kRow; n += kThreads)
            if (n / kRow < rows)
                detail::store_four(dst + n / kRow * row_stride + n % kRow * kWidth,
                                   load(tile + n / kRow * LD + n % kRow * kWidth));
    } else {
        for (int n = thread(); n < M * N; n += kThreads)
            if (n / N < rows) dst[n / N * row_stride + n % N * col_stride] = from_float<T>(tile[n / N * LD + n % N]);
    }
}

}  // namespace forge::cuda
