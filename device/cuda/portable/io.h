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

/// Four neighbours in the words in which they lie in memory, two of 16 bits in each: they go to and from those with one
/// instruction each, or one for two, and are not waited for before, as registers of 16 bits are.
template <class T>
struct alignas(kWidth * sizeof(T)) Four {
    unsigned word[kWidth * sizeof(T) / sizeof(unsigned)];
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

/// Four elements, `stride` apart.
template <class T>
FORGE_DEVICE Four<T> gather_four(const T* p, Size stride) {
    Four<T> four;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int l = 0; l < kWidth; ++l) four.word[l] = __float_as_uint(p[l * stride]);
    } else {
#pragma unroll
        for (int l = 0; l < kWidth; l += 2)
            four.word[l / 2] = p[l * stride].bits | static_cast<unsigned>(p[(l + 1) * stride].bits) << 16;
    }
    return four;
}

FORGE_DEVICE unsigned pair_of(bf16, float low, float high) { return ptx::bf16_pair(low, high); }
FORGE_DEVICE unsigned pair_of(f16, float low, float high) { return ptx::f16_pair(low, high); }

template <class T>
FORGE_DEVICE float number_in(const unsigned* words, int l) {
    if constexpr (sizeof(T) == 4) return __uint_as_float(words[l]);
    else return to_float(T{static_cast<unsigned short>(words[l / 2] >> l % 2 * 16)});
}

template <class T>
FORGE_DEVICE vec to_vec(const Four<T>& four) {
    return {{number_in<T>(four.word, 0), number_in<T>(four.word, 1), number_in<T>(four.word, 2),
             number_in<T>(four.word, 3)}};
}

template <class T>
FORGE_DEVICE Four<T> in_words(const vec& v) {
    if constexpr (sizeof(T) == 4)
        return {{__float_as_uint(v.x[0]), __float_as_uint(v.x[1]), __float_as_uint(v.x[2]), __float_as_uint(v.x[3])}};
    else return {{pair_of(T{}, v.x[0], v.x[1]), pair_of(T{}, v.x[2], v.x[3])}};
}

template <class T>
FORGE_DEVICE void store_four(T* p, const vec& v) {
    *reinterpret_cast<Four<T>*>(p) = in_words<T>(v);
}

/// The fours of an M x N matrix that this thread moves, step by step. Where the threads take whole rows at a time, it
/// stays in its columns, and one address and its increment are all that it needs.
template <int M, int N>
struct Fours {
    static constexpr int kRow = vectors(N), kSteps = pieces(M * kRow, kThreads);
    int first = thread();

    [[nodiscard]] FORGE_DEVICE int row(int step) const {
        if constexpr (kThreads % kRow == 0) return first / kRow + step * (kThreads / kRow);
        else return (step * kThreads + first) / kRow;
    }
    [[nodiscard]] FORGE_DEVICE int column(int step) const {
        if constexpr (kThreads % kRow == 0) return first % kRow * kWidth;
        else return (step * kThreads + first) % kRow * kWidth;
    }
    /// f(step, address) for each step, from the address of the first row and column on.
    template <class T, class F>
    FORGE_DEVICE void each(T* p, Size row_stride, F f) const {
        if constexpr (kThreads % kRow == 0) {
            p += row(0) * row_stride + column(0);
#pragma unroll
            for (int s = 0; s < kSteps; ++s, p += kThreads / kRow * row_stride) f(s, p);
        } else {
#pragma unroll
            for (int s = 0; s < kSteps; ++s) f(s, p + row(s) * row_stride + column(s));
        }
    }
    [[nodiscard]] FORGE_DEVICE bool has(int step, int rows) const {
        return row(step) < rows && (M * kRow % kThreads == 0 || step + 1 < kSteps || row(step) < M);
    }
};

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
    detail::Four<T> x[detail::Fours<M, N>::kSteps];
    bool fours;
};

/// Asks for `rows` rows of exactly N elements each.
template <class T, int M, int N>
FORGE_DEVICE Fetched<T, M, N> fetch_tile(const T* src, Size row_stride, Size col_stride, int rows) {
    const detail::Fours<M, N> own;
    Fetched<T, M, N> fetched;
    fetched.fours = N % kWidth == 0 && detail::in_fours(src, row_stride, col_stride);
    if (!fetched.fours) rows = 0;
    own.each(src, row_stride, [&](int s, const T* p) {
        fetched.x[s] = {};
        if (own.has(s, rows)) fetched.x[s] = detail::load_four(p);
    });
    return fetched;
}

namespace detail {

template <int LD, class T, int M, int N>
FORGE_DEVICE void place_fours(float* tile, const Fetched<T, M, N>& fetched, int rows, float pad) {
    const Fours<M, N> own;
#pragma unroll
    for (int s = 0; s < own.kSteps; ++s)
        if (own.has(s, M))
            store(tile + own.row(s) * LD + own.column(s),
                  pad == 0.0f || own.row(s) < rows ? to_vec(fetched.x[s]) : broadcast(pad));
}

/// Number by number.
template <int LD, class T, int M, int N>
FORGE_DEVICE void load_numbers(float* tile, const T* src, Size row_stride, Size col_stride, int rows, float pad) {
#pragma unroll 1
    for (int n = thread(); n < M * N; n += kThreads)
        tile[n / N * LD + n % N] = n / N < rows ? load_number(src + n / N * row_stride + n % N * col_stride) : pad;
}

}  // namespace detail

/// tile[r, c] = src[r * row_stride + c * col_stride] for r < rows; rows from there to M hold `pad`.
template <int LD, class T, int M, int N>
FORGE_DEVICE void place_tile(float* tile, const Fetched<T, M, N>& fetched, const T* src, Size row_stride,
                             Size col_stride, int rows, float pad) {
    if (fetched.fours) detail::place_fours<LD>(tile, fetched, rows, pad);
    else detail::load_numbers<LD, T, M, N>(tile, src, row_stride, col_stride, rows, pad);
}

namespace detail {

/// Both at once, in parts that leave registers for others.
template <class T, int M, int N, int LD>
FORGE_DEVICE void load_fours(float* tile, const T* src, Size row_stride, int rows, float pad) {
    constexpr int kPart = min(M, max(1, 8 * kThreads / vectors(N)));  // rows: eight loads per thread
#pragma unroll(M / kPart > 2 ? 1 : 2)  // wide tiles have many parts, and the compiler's time is that of its text
    for (int row = 0; row + kPart <= M; row += kPart)
        place_fours<LD>(tile + row * LD, fetch_tile<T, kPart, N>(src + row * row_stride, row_stride, 1, rows - row),
                        rows - row, pad);
    if constexpr (M % kPart > 0) {
        constexpr int kRow = M / kPart * kPart;
        place_fours<LD>(tile + kRow * LD,
                        fetch_tile<T, M - kRow, N>(src + kRow * row_stride, row_stride, 1, rows - kRow), rows - kRow,
                        pad);
    }
}

}  // namespace detail

template <class T, int M, int N, int LD>
FORGE_DEVICE void load_tile(float* tile, const T* src, Size row_stride, Size col_stride, int rows, float pad) {
    if (N % kWidth == 0 && detail::in_fours(src, row_stride, col_stride))
        detail::load_fours<T, M, N, LD>(tile, src, row_stride, rows, pad);
    else detail::load_numbers<LD, T, M, N>(tile, src, row_stride, col_stride, rows, pad);
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

/// Whole padded buffers, which begin at 16 bytes.
template <int FLOATS>
FORGE_DEVICE void copy_floats(float* dst, const float* src) {
    constexpr int kPart = 8 * kThreads * kWidth;
    if constexpr (FLOATS <= kThreads || FLOATS % kWidth != 0) {
#pragma unroll 1
        for (int n = thread(); n < FLOATS; n += kThreads) dst[n] = src[n];
    } else if constexpr (FLOATS > kPart) {
#pragma unroll 1
        for (int i = 0; i + kPart <= FLOATS; i += kPart) copy_floats<kPart>(dst + i, src + i);
        if constexpr (FLOATS % kPart > 0)
            copy_floats<FLOATS % kPart>(dst + FLOATS / kPart * kPart, src + FLOATS / kPart * kPart);
    } else {
        const int self = thread() * kWidth;
        vec x[pieces(FLOATS, kThreads * kWidth)];
#pragma unroll
        for (int n = 0; n < FLOATS; n += kThreads * kWidth)
            if (n + self < FLOATS) x[n / (kThreads * kWidth)] = load(src + n + self);
#pragma unroll
        for (int n = 0; n < FLOATS; n += kThreads * kWidth)
            if (n + self < FLOATS) store(dst + n + self, x[n / (kThreads * kWidth)]);
    }
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
        const detail::Fours<M, N> own;
        own.each(dst, row_stride, [&](int s, T* p) {
            if (own.has(s, rows)) detail::store_four(p, load(tile + own.row(s) * LD + own.column(s)));
        });
    } else {
#pragma unroll 1
        for (int n = thread(); n < M * N; n += kThreads)
            if (n / N < rows) dst[n / N * row_stride + n % N * col_stride] = from_float<T>(tile[n / N * LD + n % N]);
    }
}

}  // namespace forge::cuda
