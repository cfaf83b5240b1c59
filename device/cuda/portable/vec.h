/// Four floats of a row, which one thread works on at a time: `vec`, and `mask`, their truth values. Elementwise code is
/// written in these, as the CPU's is in its vectors. Selection is by `where`, never by multiplication: NaN and inf in
/// dropped elements vanish.
#pragma once

#include "thread.h"

namespace forge::cuda {

constexpr int kWidth = 4;

struct vec {
    float x[kWidth];
};
struct mask {
    bool x[kWidth];
};

__host__ __device__ constexpr int vectors(int n) { return pieces(n, kWidth); }

/// The row stride of a matrix that a function keeps for itself: an odd number of vectors, so that the rows that the lanes
/// of a warp read side by side lie in different memory banks.
__host__ __device__ constexpr int skewed(int columns) { return (vectors(columns) | 1) * kWidth; }

/// p is 16-byte aligned.
FORGE_DEVICE vec load(const float* p) {
    const float4 v = *reinterpret_cast<const float4*>(p);
    return {{v.x, v.y, v.z, v.w}};
}
FORGE_DEVICE void store(float* p, const vec& v) { *reinterpret_cast<float4*>(p) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]); }
FORGE_DEVICE vec broadcast(float x) { return {{x, x, x, x}}; }
FORGE_DEVICE vec gather(const float* p, int stride) { return {{p[0], p[stride], p[2 * stride], p[3 * stride]}}; }

template <class F>
FORGE_DEVICE vec each(const vec& a, F f) {
    return {{f(a.x[0]), f(a.x[1]), f(a.x[2]), f(a.x[3])}};
}
template <class F>
FORGE_DEVICE vec each(const vec& a, const vec& b, F f) {
    return {{f(a.x[0], b.x[0]), f(a.x[1], b.x[1]), f(a.x[2], b.x[2]), f(a.x[3], b.x[3])}};
}
template <class F>
FORGE_DEVICE mask test(const vec& a, const vec& b, F f) {
    return {{f(a.x[0], b.x[0]), f(a.x[1], b.x[1]), f(a.x[2], b.x[2]), f(a.x[3], b.x[3])}};
}

FORGE_DEVICE vec where(const mask& c, const vec& a, const vec& b) {
    return {{c.x[0] ? a.x[0] : b.x[0], c.x[1] ? a.x[1] : b.x[1], c.x[2] ? a.x[2] : b.x[2], c.x[3] ? a.x[3] : b.x[3]}};
}
FORGE_DEVICE mask where(const mask& c, const mask& a, const mask& b) {
    return {{c.x[0] ? a.x[0] : b.x[0], c.x[1] ? a.x[1] : b.x[1], c.x[2] ? a.x[2] : b.x[2], c.x[3] ? a.x[3] : b.x[3]}};
}

FORGE_DEVICE mask lt(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x < y; }); }
FORGE_DEVICE mask le(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x <= y; }); }
FORGE_DEVICE mask gt(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x > y; }); }
FORGE_DEVICE mask ge(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x >= y; }); }
FORGE_DEVICE mask eq(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x == y; }); }
FORGE_DEVICE mask ne(const vec& a, const vec& b) { return test(a, b, [](float x, float y) { return x != y; }); }

FORGE_DEVICE vec mask_to_float(const mask& c) { return where(c, broadcast(1.0f), broadcast(0.0f)); }

// Element l of a vector stands for the matrix entry (row, col0 + l).

/// x on and below the diagonal-th diagonal, 0 above it.
FORGE_DEVICE vec tril(const vec& x, int row, int col0, int diagonal = 0) {
    vec y;
    for (int l = 0; l < kWidth; ++l) y.x[l] = col0 + l <= row + diagonal ? x.x[l] : 0.0f;
    return y;
}

/// x on and above the diagonal-th diagonal, 0 below it.
FORGE_DEVICE vec triu(const vec& x, int row, int col0, int diagonal = 0) {
    vec y;
    for (int l = 0; l < kWidth; ++l) y.x[l] = col0 + l >= row + diagonal ? x.x[l] : 0.0f;
    return y;
}

/// The identity matrix.
FORGE_DEVICE vec eye(int row, int col0) {
    vec y;
    for (int l = 0; l < kWidth; ++l) y.x[l] = col0 + l == row ? 1.0f : 0.0f;
    return y;
}

}  // namespace forge::cuda
