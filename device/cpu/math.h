/// Elementary functions on `vec`, with the values PyTorch gives at 0, inf and NaN.
///
/// A vector goes in, the function of each lane comes out. The errors stated are the largest found
/// over the floats with normal results, on any target; tests/device samples them. Results below
/// 1e-38 are less exact and may be 0. `sin`, `cos` and `pow` call the C library lane by lane:
/// right, not fast. No flags are raised and the rounding mode is taken to be to nearest.
#pragma once

#include "vec.h"

namespace forge::cpu {

FORGE_INLINE vec add(vec a, vec b) { return a + b; }
FORGE_INLINE vec sub(vec a, vec b) { return a - b; }
FORGE_INLINE vec mul(vec a, vec b) { return a * b; }
FORGE_INLINE vec div(vec a, vec b) { return a / b; }
FORGE_INLINE vec neg(vec x) { return -x; }
FORGE_INLINE vec abs(vec x) { return (vec)((ivec)x & 0x7fffffff); }
FORGE_INLINE vec square(vec x) { return x * x; }
FORGE_INLINE vec relu(vec x) { return maximum(x, vec{}); }
FORGE_INLINE vec reciprocal(vec x) { return 1.0f / x; }

FORGE_INLINE vec sqrt(vec x) {
#if defined(__AVX512F__) && !defined(__clang__)
    return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#elif defined(__AVX2__) && !defined(__clang__)
    return __builtin_ia32_sqrtps256(x);
#elif defined(__SSE2__) && !defined(__clang__)
    return __builtin_ia32_sqrtps(x);
#else
    for (int l = 0; l < kWidth; ++l) x[l] = __builtin_sqrtf(x[l]);
    return x;
#endif
}

FORGE_INLINE vec rsqrt(vec x) { return 1.0f / sqrt(x); }

namespace detail {

// c0 + c1 x + c2 x^2 + …: Horner's rule, but in two halves side by side where one chain would be
// long.
FORGE_INLINE vec polynomial(vec, float c0) { return broadcast(c0); }
template <class... C>
FORGE_INLINE vec polynomial(vec x, float c0, C... rest) {
    return polynomial(x, rest...) * x + c0;
}
template <class... C>
    requires(sizeof...(C) >= 4)
FORGE_INLINE vec polynomial(vec x, float c0, float c1, float c2, float c3, C... rest) {
    const vec x2 = x * x;
    return polynomial(x, rest...) * (x2 * x2) + ((c3 * x + c2) * x2 + (c1 * x + c0));
}

// x as n + r with n integral and |r| <= 1/2. Adding 1.5 * 2^23 leaves n in the low mantissa bits,
// as two's complement.
struct Rounded {
    vec value;
    ivec integer;
};
FORGE_INLINE Rounded round_to_int(vec x) {
    constexpr float kMagic = 12582912.0f;
    const vec shifted = x + kMagic;
    return {shifted - kMagic, (ivec)((uvec)shifted - 0x4b400000u)};
}

// x, kept within [lo, hi]; NaN stays.
FORGE_INLINE vec clamp(vec x, float lo, float hi) { return smaller(broadcast(hi), larger(broadcast(lo), x)); }

// x / 2^k, by the exponent field alone.
FORGE_INLINE vec without_exponent(vec x, ivec k) { return (vec)((uvec)x - ((uvec)k << 23)); }

// 2^n for n in [-126, 128]; 2^128 is inf.
FORGE_INLINE vec power_of_two(ivec n) { return (vec)(((uvec)n + 127u) << 23); }

// x * 2^n for n in [-252, 256]: two factors, so that neither over- nor underflows alone.
FORGE_INLINE vec scale(vec x, Rounded n) {
#if defined(__AVX512F__) && !defined(__clang__)
    return __builtin_ia32_scalefps512_mask(x, n.value, x, -1, 4);
#else
    const ivec half = n.integer >> 1;
    return x * power_of_two(half) * power_of_two(n.integer - half);
#endif
}

// ln 2 in two parts; the first has nine bits, so a product with a small integer is exact.
constexpr float kLn2Hi = 0.693359375f;
constexpr float kLn2Lo = -2.12194440e-4f;

// e^x - 1 - x for |x| <= ln 2 / 2 (minimax, relative error of the resulting e^x 3e-9).
FORGE_INLINE vec exp_tail(vec r) {
    return r * r * polynomial(r, 0.49999994f, 0.166665196f, 0.0416684002f, 0.00836885069f, 0.00138143206f);
}

// log(1 + f) + k ln 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1] (minimax, relative error of the
// logarithm 8e-10).
FORGE_INLINE vec log_sum(vec f, vec k) {
    const vec p = polynomial(f, 0.333333135f, -0.250000089f, 0.200021237f, -0.166680083f, 0.142194524f, -0.124052763f,
                             0.118886299f, -0.116778895f, 0.0674835891f);
    const vec f2 = f * f;
    return k * kLn2Hi + (f + (f2 * f * p + (k * kLn2Lo - 0.5f * f2)));
}

// The exponent k that leaves x / 2^k in [sqrt(1/2), sqrt(2)), for normal positive x.
FORGE_INLINE ivec exponent(vec x) { return (ivec)((uvec)x - 0x3f3504f3u) >> 23; }

// What logarithms return where the formula does not hold, `zero` standing for the argument at which
// log is -inf.
FORGE_INLINE vec log_edges(vec x, vec argument, vec result) {
    const vec inf = broadcast(__builtin_inff());
    result = where(argument == 0.0f, -inf, result);
    result = where(argument < 0.0f, broadcast(__builtin_nanf("")), result);
    return where((x == inf) | (x != x), x, result);
}

// log(1 + x) for finite x > -1, and NaN for NaN.
FORGE_INLINE vec log1p_finite(vec x) {
    const vec u = 1.0f + x;
    const vec lost = x - (u - 1.0f);  // what rounding took from u
    const ivec k = exponent(u);
    const ivec down = where(k > 126, broadcast(-126), -k);  // up there `lost` does not count
    const vec f = without_exponent(u, k) - 1.0f + lost * power_of_two(down);
    return log_sum(where(k == 0, x, f), __builtin_convertvector(k, vec));
}

// The nearest integer to |x|, of two the even one; from 2^23 on floats are integers. NaN stays.
FORGE_INLINE vec round_magnitude(vec x) {
    const vec y = abs(x);
    return where(y < 8388608.0f, (y + 8388608.0f) - 8388608.0f, y);
}

// The sign of x on a magnitude.
FORGE_INLINE vec with_sign(vec magnitude, vec x) { return (vec)((ivec)magnitude | ((ivec)x & INT32_MIN)); }

template <class F>
FORGE_INLINE vec each_lane(vec x, F f) {
    for (int l = 0; l < kWidth; ++l) x[l] = f(x[l]);
    return x;
}

}  // namespace detail

/// e^x. Error below 1.1 ulp.
FORGE_INLINE vec exp(vec x) {
    x = detail::clamp(x, -104.0f, 89.0f);  // beyond these the result is 0 or inf
    const detail::Rounded n = detail::round_to_int(x * 1.44269504f);
    const vec r = (x - n.value * detail::kLn2Hi) - n.value * detail::kLn2Lo;
    return detail::scale(1.0f + (r + detail::exp_tail(r)), n);
}

/// 2^x. Error below 1.2 ulp.
FORGE_INLINE vec exp2(vec x) {
    x = detail::clamp(x, -151.0f, 129.0f);
    const detail::Rounded n = detail::round_to_int(x);
    const vec r = x - n.value;
    const vec p = detail::polynomial(r, 0.693147182f, 0.240226477f, 0.0555033199f, 0.00961843971f, 0.00133991323f,
                                     0.000153531539f);
    return detail::scale(1.0f + r * p, n);
}

/// e^x - 1, accurate near 0. Error below 1.5 ulp.
FORGE_INLINE vec expm1(vec x) {
    const vec y = detail::clamp(x, -18.0f, 89.0f);
    const detail::Rounded n = detail::round_to_int(y * 1.44269504f);
    const vec r = (y - n.value * detail::kLn2Hi) - n.value * detail::kLn2Lo;
    const vec half = detail::power_of_two(n.integer - 1);  // halved: 2^128 would overflow before its time
    const vec result = 2.0f * (half * (r + detail::exp_tail(r)) + (half - 0.5f));
    return where(abs(x) < 1e-7f, x, result);
}

/// Natural logarithm. Error below 0.9 ulp.
FORGE_INLINE vec log(vec x) {
    const ivec subnormal = x < 1.17549435e-38f;
    const vec y = where(subnormal, x * 33554432.0f, x);
    const ivec k = detail::exponent(y);
    const vec f = detail::without_exponent(y, k) - 1.0f;
    const vec power = __builtin_convertvector(k - where(subnormal, broadcast(25), ivec{}), vec);
    return detail::log_edges(x, x, detail::log_sum(f, power));
}

/// log(1 + x), accurate near 0. Error below 1.5 ulp.
FORGE_INLINE vec log1p(vec x) { return detail::log_edges(x, 1.0f + x, detail::log1p_finite(x)); }

/// 1 / (1 + e^-x). Error below 2.4 ulp.
FORGE_INLINE vec sigmoid(vec x) { return 1.0f / (1.0f + exp(-x)); }

/// log(1 + e^x), at every x: no threshold. Error below 1.8 ulp.
FORGE_INLINE vec softplus(vec x) { return maximum(x, vec{}) + detail::log1p_finite(exp(-abs(x))); }

/// log(sigmoid(x)). Error below 1.8 ulp.
FORGE_INLINE vec logsigmoid(vec x) { return minimum(x, vec{}) - detail::log1p_finite(exp(-abs(x))); }

/// x sigmoid(x). Error below 2.4 ulp.
FORGE_INLINE vec silu(vec x) { return x / (1.0f + exp(-x)); }

/// Hyperbolic tangent: a polynomial up to 0.63, 1 - 2 / (e^2x + 1) beyond, where nothing cancels.
/// Error below 1.4 ulp.
FORGE_INLINE vec tanh(vec x) {
    const vec y = x * x;
    const vec near =
        x + x * y * detail::polynomial(y, -0.333332747f, 0.133312747f, -0.0537251271f, 0.0205898266f, -0.00564831635f);
    const vec magnitude = abs(x);
    const vec far = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
    return where(magnitude < 0.63f, near, detail::with_sign(far, x));
}

/// The nearest integer, of two the even one. Exact, as are the next three.
FORGE_INLINE vec round(vec x) { return detail::with_sign(detail::round_magnitude(x), x); }
FORGE_INLINE vec floor(vec x) {
    const vec nearest = round(x);
    return where(nearest > x, nearest - 1.0f, nearest);
}
FORGE_INLINE vec ceil(vec x) { return -floor(-x); }
FORGE_INLINE vec sign(vec x) { return where(x > 0.0f, broadcast(1.0f), where(x < 0.0f, broadcast(-1.0f), x)); }

FORGE_INLINE vec sin(vec x) {
    return detail::each_lane(x, [](float t) { return __builtin_sinf(t); });
}

FORGE_INLINE vec cos(vec x) {
    return detail::each_lane(x, [](float t) { return __builtin_cosf(t); });
}

FORGE_INLINE vec pow(vec x, vec y) {
    for (int l = 0; l < kWidth; ++l) x[l] = __builtin_powf(x[l], y[l]);
    return x;
}

}  // namespace forge::cpu
