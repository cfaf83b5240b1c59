/// Neighbours in a row, which one thread works on at a time: `vec`, four floats, `pair`, two, and `mask`, their truth
/// values. Elementwise code is written in these, as the CPU's is in its vectors. Selection is by `where`, never by
/// multiplication: NaN and inf in dropped elements vanish.
#pragma once

#include "thread.h"

namespace forge::cuda {

constexpr int kWidth = 4;

template <int W>
struct Vec {
    float x[W];
};
template <int W>
struct Mask {
    bool x[W];
};
using vec = Vec<kWidth>;
using mask = Mask<kWidth>;
using pair = Vec<2>;

__host__ __device__ constexpr int vectors(int n) { return pieces(n, kWidth); }

/// The row stride of a matrix that a function keeps for itself: an odd number of vectors, so that the rows that the
/// lanes of a warp read side by side lie in different memory banks.
__host__ __device__ constexpr int skewed(int columns) { return (vectors(columns) | 1) * kWidth; }

/// p is 16-byte aligned.
FORGE_DEVICE vec load(const float* p) {
    const float4 v = *reinterpret_cast<const float4*>(p);
    return {{v.x, v.y, v.z, v.w}};
}
FORGE_DEVICE void store(float* p, const vec& v) {
    *reinterpret_cast<float4*>(p) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
}
FORGE_DEVICE vec broadcast(float x) { return {{x, x, x, x}}; }
FORGE_DEVICE vec gather(const float* p, int stride) { return {{p[0], p[stride], p[2 * stride], p[3 * stride]}}; }

/// p is 8-byte aligned.
FORGE_DEVICE pair load_pair(const float* p) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    return {{v.x, v.y}};
}
FORGE_DEVICE void store_pair(float* p, const pair& v) { *reinterpret_cast<float2*>(p) = make_float2(v.x[0], v.x[1]); }
FORGE_DEVICE pair broadcast_pair(float x) { return {{x, x}}; }
FORGE_DEVICE pair gather_pair(const float* p, int stride) { return {{p[0], p[stride]}}; }

template <int W, class F>
FORGE_DEVICE Vec<W> each(const Vec<W>& a, F f) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = f(a.x[l]);
    return y;
}
template <int W, class F>
FORGE_DEVICE Vec<W> each(const Vec<W>& a, const Vec<W>& b, F f) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = f(a.x[l], b.x[l]);
    return y;
}
template <int W, class F>
FORGE_DEVICE Mask<W> test(const Vec<W>& a, const Vec<W>& b, F f) {
    Mask<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = f(a.x[l], b.x[l]);
    return y;
}

template <int W>
FORGE_DEVICE Vec<W> where(const Mask<W>& c, const Vec<W>& a, const Vec<W>& b) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = c.x[l] ? a.x[l] : b.x[l];
    return y;
}
template <int W>
FORGE_DEVICE Mask<W> where(const Mask<W>& c, const Mask<W>& a, const Mask<W>& b) {
    Mask<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = c.x[l] ? a.x[l] : b.x[l];
    return y;
}

#define FORGE_EACH_COMPARE(name, op)                                \
    template <int W>                                                \
    FORGE_DEVICE Mask<W> name(const Vec<W>& a, const Vec<W>& b) {   \
        return test(a, b, [](float x, float y) { return x op y; }); \
    }

FORGE_EACH_COMPARE(lt, <)
FORGE_EACH_COMPARE(le, <=)
FORGE_EACH_COMPARE(gt, >)
FORGE_EACH_COMPARE(ge, >=)
FORGE_EACH_COMPARE(eq, ==)
FORGE_EACH_COMPARE(ne, !=)

#undef FORGE_EACH_COMPARE

template <int W>
FORGE_DEVICE Vec<W> mask_to_float(const Mask<W>& c) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = c.x[l] ? 1.0f : 0.0f;
    return y;
}

// Element l of a vector stands for the matrix entry (row, col0 + l).

/// x on and below the diagonal-th diagonal, 0 above it.
template <int W>
FORGE_DEVICE Vec<W> tril(const Vec<W>& x, int row, int col0, int diagonal = 0) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = col0 + l <= row + diagonal ? x.x[l] : 0.0f;
    return y;
}

/// x on and above the diagonal-th diagonal, 0 below it.
template <int W>
FORGE_DEVICE Vec<W> triu(const Vec<W>& x, int row, int col0, int diagonal = 0) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = col0 + l >= row + diagonal ? x.x[l] : 0.0f;
    return y;
}

/// The identity matrix.
template <int W>
FORGE_DEVICE Vec<W> diagonal_of_ones(int row, int col0) {
    Vec<W> y;
#pragma unroll
    for (int l = 0; l < W; ++l) y.x[l] = col0 + l == row ? 1.0f : 0.0f;
    return y;
}
/// first, first + 1, …
FORGE_DEVICE vec count_from(int first) {
    vec y;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) y.x[l] = static_cast<float>(first + l);
    return y;
}
FORGE_DEVICE vec eye(int row, int col0) { return diagonal_of_ones<kWidth>(row, col0); }
FORGE_DEVICE pair eye_pair(int row, int col0) { return diagonal_of_ones<2>(row, col0); }

}  // namespace forge::cuda
