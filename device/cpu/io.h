/// Between global memory and tiles: element types, their conversions, and loads and stores of
/// partial tiles.
///
/// Global matrices have any strides and hold float, bf16 or f16; tiles are row-major float with row
/// stride LD. Only valid elements of global memory are touched: `rows` rows of exactly N elements
/// each. Rounding is to nearest even; NaN stays NaN; f16 overflows to inf. Tile columns from N on
/// are unspecified after any of these.
#pragma once

#include <cstring>

#include "vec.h"

namespace forge::cpu {

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

namespace detail {

typedef int16_t Halves __attribute__((vector_size(2 * kWidth)));
typedef uint16_t UnsignedHalves __attribute__((vector_size(2 * kWidth)));

FORGE_INLINE ivec widen(Halves x) { return __builtin_convertvector((UnsignedHalves)x, ivec); }
FORGE_INLINE Halves narrow(ivec x) { return __builtin_convertvector(x, Halves); }

FORGE_INLINE vec bf16_to_float(Halves x) { return (vec)(widen(x) << 16); }

FORGE_INLINE Halves float_to_bf16(vec x) {
    const uvec bits = (uvec)x;
    const uvec rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return narrow(where(x == x, (ivec)rounded, (ivec)(bits | 0x400000u)) >> 16);
}

// f16 by integer arithmetic, for targets that have no conversion instructions.
FORGE_INLINE vec f16_to_float_portable(Halves x) {
    const ivec bits = widen(x);
    const ivec magnitude = bits & 0x7fff;
    // Moved to float's place the exponent is 112 too small; the product also makes subnormals
    // normal.
    const vec finite = (vec)(magnitude << 13) * 0x1p112f;
    const ivec special = (magnitude << 13) | 0x7f800000;
    return (vec)(where(magnitude >= 0x7c00, special, (ivec)finite) | ((bits & 0x8000) << 16));
}

FORGE_INLINE Halves float_to_f16_portable(vec x) {
    const ivec magnitude = (ivec)x & 0x7fffffff;
    const uvec last = ((uvec)magnitude >> 13) & 1u;
    const ivec normal = (ivec)((uvec)magnitude + 0xfffu + last - (112u << 23)) >> 13;
    // Beside 0.5, whose last bit is the smallest subnormal of f16, the addition itself rounds.
    const ivec subnormal = (ivec)((vec)magnitude + 0.5f) - 0x3f000000;
    ivec y = where(magnitude < (113 << 23), subnormal, normal);
    y = where(magnitude >= (143 << 23), broadcast(0x7c00), y);
    y = where(magnitude > 0x7f800000, broadcast(0x7e00) | (magnitude >> 13 & 0x3ff), y);
    return narrow(y | (((ivec)x >> 16) & 0x8000));
}

#if defined(__clang__) || !defined(__F16C__)
FORGE_INLINE vec f16_to_float(Halves x) { return f16_to_float_portable(x); }
FORGE_INLINE Halves float_to_f16(vec x) { return float_to_f16_portable(x); }
#elif defined(__AVX512F__)
FORGE_INLINE vec f16_to_float(Halves x) { return __builtin_ia32_vcvtph2ps512_mask(x, vec{}, -1, 4); }
FORGE_INLINE Halves float_to_f16(vec x) { return __builtin_ia32_vcvtps2ph512_mask(x, 0, Halves{}, -1); }
#elif defined(__AVX2__)
FORGE_INLINE vec f16_to_float(Halves x) { return __builtin_ia32_vcvtph2ps256(x); }
FORGE_INLINE Halves float_to_f16(vec x) { return __builtin_ia32_vcvtps2ph256(x, 0); }
#else
FORGE_INLINE vec f16_to_float(Halves x) { return f16_to_float_portable(x); }
FORGE_INLINE Halves float_to_f16(vec x) { return float_to_f16_portable(x); }
#endif

FORGE_INLINE vec to_float(vec x, float) { return x; }
FORGE_INLINE vec to_float(Halves x, bf16) { return bf16_to_float(x); }
FORGE_INLINE vec to_float(Halves x, f16) { return f16_to_float(x); }
FORGE_INLINE vec from_float(vec x, float) { return x; }
FORGE_INLINE Halves from_float(vec x, bf16) { return float_to_bf16(x); }
FORGE_INLINE Halves from_float(vec x, f16) { return float_to_f16(x); }

}  // namespace detail

/// The first `count` elements at p, converted; the other lanes are 0. A constant count makes this
/// one load.
template <class T>
FORGE_INLINE vec load_as(const T* p, int count = kWidth) {
    decltype(detail::from_float(vec{}, T{})) raw{};
    std::memcpy(&raw, p, unsigned(count) * sizeof(T));
    return detail::to_float(raw, T{});
}

/// The first `count` lanes of x, converted, to p.
template <class T>
FORGE_INLINE void store_as(T* p, vec x, int count = kWidth) {
    const auto raw = detail::from_float(x, T{});
    std::memcpy(p, &raw, unsigned(count) * sizeof(T));
}

/// x as T would hold it.
template <class T>
FORGE_INLINE vec round_to(vec x) {
    return detail::to_float(detail::from_float(x, T{}), T{});
}

template <int N>
inline void fill(float* x, float value) {
    for (int i = 0; i < N; i += kWidth) store(x + i, broadcast(value));
}

template <int M, int N, int LD>
inline void fill_tile(float* tile, float value) {
    for (int i = 0; i < M; ++i) fill<N>(tile + i * LD, value);
}

template <int M, int N, int LDD, int LDS>
inline void copy_tile(float* dst, const float* src) {
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; j += kWidth) store(dst + i * LDD + j, load(src + i * LDS + j));
    }
}

/// Prefetches M rows of N elements that are going to be read (or, WRITE, written) soon; the address may be invalid.
template <int M, int N, bool WRITE, class T>
inline void prefetch_rows(const T* src, int64_t row_stride) {
    constexpr int kLine = 64 / sizeof(T);
    for (int r = 0; r < M; ++r) {
        for (int c = 0; c < N; c += kLine) __builtin_prefetch(src + r * row_stride + c, WRITE, 2);
    }
}

/// tile[r, c] = src[r * row_stride + c * col_stride] for r < rows; rows from there to M hold `pad`.
/// Vectors when col_stride is 1; other strides go element by element.
template <class T, int M, int N, int LD>
__attribute__((noinline)) void load_tile(float* tile, const T* src, int64_t row_stride, int64_t col_stride, int rows,
                                         float pad) {
    rows = rows < 0 ? 0 : rows > M ? M : rows;
    constexpr int kFull = N / kWidth * kWidth;
    for (int r = 0; r < rows; ++r, src += row_stride, tile += LD) {
        if (col_stride == 1) {
            for (int c = 0; c < kFull; c += kWidth) store(tile + c, load_as(src + c));
            if constexpr (N > kWidth && kFull < N) {
                store(tile + N - kWidth,
                      load_as(src + N - kWidth));  // the last vector overlaps the one before
            } else if constexpr (kFull < N) {
                store(tile, load_as(src, N));
            }
        } else {
            for (int c = 0; c < N; ++c) tile[c] = load_as(src + c * col_stride, 1)[0];
        }
    }
    for (int r = rows; r < M; ++r, tile += LD) fill<N>(tile, pad);
}

/// dst[r * row_stride + c * col_stride] = tile[r, c] for r < rows.
template <class T, int M, int N, int LD>
__attribute__((noinline)) void store_tile(T* dst, int64_t row_stride, int64_t col_stride, const float* tile, int rows) {
    rows = rows > M ? M : rows;
    constexpr int kFull = N / kWidth * kWidth;
    for (int r = 0; r < rows; ++r, dst += row_stride, tile += LD) {
        if (col_stride == 1) {
            for (int c = 0; c < kFull; c += kWidth) store_as(dst + c, load(tile + c));
            if constexpr (N > kWidth && kFull < N) {
                store_as(dst + N - kWidth, load(tile + N - kWidth));
            } else if constexpr (kFull < N) {
                store_as(dst, load(tile), N);
            }
        } else {
            for (int c = 0; c < N; ++c) store_as(dst + c * col_stride, broadcast(tile[c]), 1);
        }
    }
}

}  // namespace forge::cpu
