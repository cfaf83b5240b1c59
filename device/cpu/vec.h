/// The SIMD value of the CPU device library: `vec`, kWidth floats, and `ivec`, kWidth int32 lanes.
///
/// Pointers, scalars and lane masks go in; whole vectors come out. A mask is an ivec whose lanes
/// are 0 or -1. Selection is by `where`, never by multiplication, so NaN and inf in dropped lanes
/// vanish. Built on the compiler's vector extensions: no intrinsics header, and any target
/// compiles. Not here: elementary functions (math.h), conversions from other element types (io.h).
#pragma once

#include <cstdint>

#define FORGE_INLINE inline __attribute__((always_inline))

namespace forge::cpu {

// Lane numbers as a template argument pack: shuffles need constant indices.
template <int... L>
struct Lanes {};

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kRegisters = 32;
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kRegisters = 16;
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
constexpr int kWidth = 4;
constexpr int kRegisters = 16;
using AllLanes = Lanes<0, 1, 2, 3>;
#endif

typedef float vec __attribute__((vector_size(4 * kWidth)));
typedef int32_t ivec __attribute__((vector_size(4 * kWidth)));
typedef uint32_t uvec __attribute__((vector_size(4 * kWidth)));  // bits of floats: sums may wrap

/// The smallest multiple of m that is at least n.
constexpr int round_up(int n, int m) { return (n + m - 1) / m * m; }

/// The number of vectors that hold n floats.
constexpr int vectors(int n) { return (n + kWidth - 1) / kWidth; }

FORGE_INLINE vec load(const float* p) {
    typedef float Unaligned __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
    return *reinterpret_cast<const Unaligned*>(p);
}

FORGE_INLINE void store(float* p, vec x) {
    typedef float Unaligned __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
    *reinterpret_cast<Unaligned*>(p) = x;
}

FORGE_INLINE vec broadcast(float x) { return x - vec{}; }  // x - 0 keeps -0; x + 0 would not
FORGE_INLINE ivec broadcast(int32_t x) { return x + ivec{}; }

/// Lane l is p[l * stride].
FORGE_INLINE vec gather(const float* p, int64_t stride) {
    vec x{};
    for (int l = 0; l < kWidth; ++l) x[l] = p[l * stride];
    return x;
}

template <int... L>
FORGE_INLINE constexpr ivec iota(Lanes<L...>) {
    return ivec{L...};
}

/// 0, 1, 2, …
FORGE_INLINE constexpr ivec iota() { return iota(AllLanes{}); }

// Selection. ------------------------------------------------------------------------------------

FORGE_INLINE vec where(ivec c, vec a, vec b) { return c ? a : b; }
FORGE_INLINE ivec where(ivec c, ivec a, ivec b) { return c ? a : b; }

FORGE_INLINE ivec lt(vec a, vec b) { return a < b; }
FORGE_INLINE ivec le(vec a, vec b) { return a <= b; }
FORGE_INLINE ivec gt(vec a, vec b) { return a > b; }
FORGE_INLINE ivec ge(vec a, vec b) { return a >= b; }
FORGE_INLINE ivec eq(vec a, vec b) { return a == b; }
FORGE_INLINE ivec ne(vec a, vec b) { return a != b; }

FORGE_INLINE ivec logical_and(ivec a, ivec b) { return a & b; }
FORGE_INLINE ivec logical_or(ivec a, ivec b) { return a | b; }
FORGE_INLINE ivec logical_not(ivec a) { return ~a; }

/// 1 where the mask is set, 0 elsewhere.
FORGE_INLINE vec mask_to_float(ivec c) { return where(c, broadcast(1.0f), vec{}); }

/// The first n lanes of x, `other` in the rest.
FORGE_INLINE vec keep_first(vec x, int n, vec other = vec{}) { return where(iota() < n, x, other); }

// a > b ? a : b and a < b ? a : b, hence b where either is NaN. GCC does not find the instruction
// in the expression.
#if defined(__AVX512F__) && !defined(__clang__)
FORGE_INLINE vec larger(vec a, vec b) { return __builtin_ia32_maxps512_mask(a, b, a, -1, 4); }
FORGE_INLINE vec smaller(vec a, vec b) { return __builtin_ia32_minps512_mask(a, b, a, -1, 4); }
#elif defined(__AVX2__) && !defined(__clang__)
FORGE_INLINE vec larger(vec a, vec b) { return __builtin_ia32_maxps256(a, b); }
FORGE_INLINE vec smaller(vec a, vec b) { return __builtin_ia32_minps256(a, b); }
#else
FORGE_INLINE vec larger(vec a, vec b) { return where(a > b, a, b); }
FORGE_INLINE vec smaller(vec a, vec b) { return where(a < b, a, b); }
#endif

/// The larger of a and b; NaN if either is NaN.
FORGE_INLINE vec maximum(vec a, vec b) { return where(a != a, a, larger(a, b)); }

/// The smaller of a and b; NaN if either is NaN.
FORGE_INLINE vec minimum(vec a, vec b) { return where(a != a, a, smaller(a, b)); }

// One vector of a matrix row: lane l stands for the entry (row, col0 + l).
// -------------------------

/// x on and below the diagonal-th diagonal, 0 above it.
FORGE_INLINE vec tril(vec x, int row, int col0, int diagonal = 0) {
    return where(iota() <= row + diagonal - col0, x, vec{});
}

/// x on and above the diagonal-th diagonal, 0 below it.
FORGE_INLINE vec triu(vec x, int row, int col0, int diagonal = 0) {
    return where(iota() >= row + diagonal - col0, x, vec{});
}

/// The identity matrix.
FORGE_INLINE vec eye(int row, int col0) { return mask_to_float(iota() == row - col0); }

/// first, first + 1, …
FORGE_INLINE vec count_from(int first) { return __builtin_convertvector(iota() + first, vec); }

// Across lanes.
// -------------------------------------------------------------------------------------

/// Lane l is lane (l + N) mod kWidth of x.
template <int N, int... L>
FORGE_INLINE vec rotate(vec x, Lanes<L...>) {
    return __builtin_shufflevector(x, x, ((L + N) % kWidth)...);
}
template <int N>
FORGE_INLINE vec rotate(vec x) {
    return rotate<N>(x, AllLanes{});
}

/// Lane l is lane l - N of x for l >= N and `fill` below; a negative N shifts towards lane 0.
template <int N, int... L>
FORGE_INLINE vec shift(vec x, vec fill, Lanes<L...>) {
    return __builtin_shufflevector(x, fill, (L - N >= 0 && L - N < kWidth ? L - N : kWidth + L)...);
}
template <int N>
FORGE_INLINE vec shift(vec x, vec fill = vec{}) {
    return shift<N>(x, fill, AllLanes{});
}

/// x combined with its rotations until every lane holds the whole: `op` is associative and
/// commutative.
template <class Op>
FORGE_INLINE float reduce(vec x, Op op) {
    if constexpr (kWidth > 8) x = op(x, rotate<8 % kWidth>(x));
    if constexpr (kWidth > 4) x = op(x, rotate<4 % kWidth>(x));
    x = op(x, rotate<2>(x));
    x = op(x, rotate<1>(x));
    return x[0];
}

/// The sum of all lanes.
FORGE_INLINE float hsum(vec x) {
    return reduce(x, [](vec a, vec b) { return a + b; });
}

/// The largest lane; NaN if any is NaN.
FORGE_INLINE float hmax(vec x) {
    return reduce(x, [](vec a, vec b) { return maximum(a, b); });
}

}  // namespace forge::cpu
