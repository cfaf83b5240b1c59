/// Elementary functions with the values PyTorch gives at 0, inf and NaN: of a float, and of each element of a `vec` or
/// `pair`. The accurate versions of CUDA's mathematics library; nothing here is compiled with fast-math.
#pragma once

#include "../ptx/convert.h"
#include "vec.h"

namespace forge::cuda {

namespace scalar {

FORGE_DEVICE float neg(float x) { return -x; }
FORGE_DEVICE float abs(float x) { return fabsf(x); }
#ifdef FORGE_FAST_EXP  // errors of 2^-22, and of |x| 2^-24 for exponentials, for kernels whose operands have 16 bits
FORGE_DEVICE float exp2(float x) { return ptx::exp2_approximate(x); }
FORGE_DEVICE float exp(float x) { return ptx::exp2_approximate(x * 1.44269504f); }
/// The series where the difference would cancel; there its next term is 2^-24 of the result.
FORGE_DEVICE float expm1(float x) {
    const float series = x * fmaf(x, fmaf(x, fmaf(x, fmaf(x, 1.0f / 120, 1.0f / 24), 1.0f / 6), 0.5f), 1.0f);
    return fabsf(x) < 0.125f ? series : exp(x) - 1.0f;
}
FORGE_DEVICE float sqrt(float x) { return ptx::sqrt_approximate(x); }
FORGE_DEVICE float rsqrt(float x) { return ptx::rsqrt_approximate(x); }
FORGE_DEVICE float sigmoid(float x) { return ptx::reciprocal_approximate(1.0f + exp(-x)); }
/// The series where the difference would cancel; there its next term is 2^-21 of the result.
FORGE_DEVICE float tanh(float x) {
    const float z = x * x, series = fmaf(x * z, fmaf(z, fmaf(z, -17.0f / 315, 2.0f / 15), -1.0f / 3), x);
    return fabsf(x) < 0.25f ? series : fmaf(-2.0f, ptx::reciprocal_approximate(1.0f + exp(2.0f * x)), 1.0f);
}
/// As exact as IEEE's, but for results below 2^-126, without a branch: a divisor that many numbers have in common, such
/// as a row's, is inverted once. A correction that is no number is of a quotient that needs none: 0, inf or NaN.
FORGE_DEVICE float div(float a, float b) {
    const float inverse = ptx::full_reciprocal_approximate(b), quotient = a * inverse;
    const float corrected = fmaf(inverse, fmaf(-b, quotient, a), quotient);
    return corrected == corrected ? corrected : quotient;
}
/// With an error of 2 ulp, where no step, such as a floor, follows.
FORGE_DEVICE float ratio(float a, float b) { return a * ptx::full_reciprocal_approximate(b); }
#else
FORGE_DEVICE float exp2(float x) { return exp2f(x); }
FORGE_DEVICE float exp(float x) { return expf(x); }
FORGE_DEVICE float expm1(float x) { return expm1f(x); }
FORGE_DEVICE float sqrt(float x) { return sqrtf(x); }
FORGE_DEVICE float rsqrt(float x) { return 1.0f / sqrtf(x); }
FORGE_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
FORGE_DEVICE float tanh(float x) { return tanhf(x); }
FORGE_DEVICE float div(float a, float b) { return a / b; }
FORGE_DEVICE float ratio(float a, float b) { return a / b; }
#endif
FORGE_DEVICE float log(float x) { return logf(x); }
FORGE_DEVICE float log1p(float x) { return log1pf(x); }
FORGE_DEVICE float reciprocal(float x) { return div(1.0f, x); }
FORGE_DEVICE float floor(float x) { return floorf(x); }
FORGE_DEVICE float ceil(float x) { return ceilf(x); }
FORGE_DEVICE float round(float x) { return rintf(x); }
FORGE_DEVICE float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

#ifdef FORGE_FAST_EXP
/// x less whole turns, between -pi and pi: 2 pi in three floats, so that errors are at most 2^-22 + 2^-48 |x|. Turns
/// of large angles have more digits than a float and are taken off twice; beyond 1e12 an angle counts as 0.
FORGE_DEVICE float without_turns(float x) {
    constexpr float kMost = 1e12f, kFew = 1e5f, kPerTurn = 0.159154937f, kToWhole = 12582912.0f;  // 1.5 * 2^23
    constexpr float kTurn[] = {-6.28318548f, 1.74845553e-7f, 6.86049805e-15f};
    const auto less = [&](float angle, float turns) {
        return fmaf(turns, kTurn[2], fmaf(turns, kTurn[1], fmaf(turns, kTurn[0], angle)));
    };
    if (fabsf(x) > kFew) x = fabsf(x) > kMost ? x * 0.0f : less(x, rintf(x * kPerTurn));
    return less(x, fmaf(x, kPerTurn, kToWhole) - kToWhole);
}
/// With errors of 2^-20; relative ones near 0, where the next term of the series is 2^-27 of the result.
FORGE_DEVICE float sin(float x) {
    const float rest = without_turns(x), square = rest * rest;
    return square < 0x1p-10f ? fmaf(rest * square, -1.0f / 6, rest) : ptx::sin_approximate(rest);
}
FORGE_DEVICE float cos(float x) { return ptx::cos_approximate(without_turns(x)); }
#else
/// x = quarter * pi/2 + rest, with a rest of at most pi/4: pi/2 in three floats, twice, as quarters of large angles
/// have more digits than a float. Errors are at most 2^-24 + 2^-48 |x|; where that means nothing any more, x counts as
/// 0. (The library's reduction needs local memory.)
struct Angle {
    float rest;
    int quarter;
};
FORGE_DEVICE Angle reduced_angle(float x) {
    constexpr float kMost = 1e12f, kPerQuarter = 0.636619747f;
    constexpr float kQuarter[] = {-1.57079637f, 4.37113883e-8f, 1.71512451e-15f};
    const float angle = fabsf(x) > kMost ? x * 0.0f : x;
    const float many = rintf(angle * kPerQuarter);
    const float left = fmaf(many, kQuarter[2], fmaf(many, kQuarter[1], fmaf(many, kQuarter[0], angle)));
    const float few = rintf(left * kPerQuarter);
    const float rest = fmaf(few, kQuarter[1], fmaf(few, kQuarter[0], left));
    return {rest, static_cast<int>(many - 4.0f * rintf(many * 0.25f)) + static_cast<int>(few)};
}
/// Of quarters further on. The series are Cephes' (sinf.c, cosf.c), with errors below 2^-23.
FORGE_DEVICE float sin_from(float x, int further) {
    const Angle angle = reduced_angle(x);
    const float r = angle.rest, z = r * r;
    const float odd = fmaf(r * z, fmaf(z, fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), r);
    const float even =
        fmaf(z * z, fmaf(z, fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f),
             fmaf(z, -0.5f, 1.0f));
    const int quarter = angle.quarter + further;
    const float found = (quarter & 1) != 0 ? even : odd;
    return (quarter & 2) != 0 ? -found : found;
}
FORGE_DEVICE float sin(float x) { return sin_from(x, 0); }
FORGE_DEVICE float cos(float x) { return sin_from(x, 1); }
#endif

/// NaN if either is NaN.
FORGE_DEVICE float maximum(float a, float b) { return a != a ? a : (a > b ? a : b); }
FORGE_DEVICE float minimum(float a, float b) { return a != a ? a : (a < b ? a : b); }

FORGE_DEVICE float relu(float x) { return maximum(x, 0.0f); }
#ifdef FORGE_FAST_EXP
FORGE_DEVICE float silu(float x) { return x * sigmoid(x); }
/// log(1 + exp(-|x|)): the series where 1 + exp would lose digits; there its next term is 2^-22 of the result.
FORGE_DEVICE float log1p_of_exp(float x) {
    const float e = exp(-fabsf(x));
    const float series = e * fmaf(e, fmaf(e, fmaf(e, fmaf(e, 0.2f, -0.25f), 1.0f / 3), -0.5f), 1.0f);
    return e < 0.0625f ? series : ptx::log_approximate(1.0f + e);
}
#else
FORGE_DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
FORGE_DEVICE float log1p_of_exp(float x) { return log1pf(expf(-fabsf(x))); }
#endif
FORGE_DEVICE float softplus(float x) { return maximum(x, 0.0f) + log1p_of_exp(x); }
FORGE_DEVICE float logsigmoid(float x) { return minimum(x, 0.0f) - log1p_of_exp(x); }

FORGE_DEVICE float add(float a, float b) { return a + b; }
FORGE_DEVICE float sub(float a, float b) { return a - b; }
FORGE_DEVICE float mul(float a, float b) { return a * b; }
FORGE_DEVICE float pow(float a, float b) { return powf(a, b); }

}  // namespace scalar

#define FORGE_EACH_UNARY(name)                                   \
    template <int W>                                             \
    FORGE_DEVICE Vec<W> name(const Vec<W>& a) {                  \
        return each(a, [](float x) { return scalar::name(x); }); \
    }
#define FORGE_EACH_BINARY(name)                                                 \
    template <int W>                                                            \
    FORGE_DEVICE Vec<W> name(const Vec<W>& a, const Vec<W>& b) {                \
        return each(a, b, [](float x, float y) { return scalar::name(x, y); }); \
    }

FORGE_EACH_UNARY(neg)
FORGE_EACH_UNARY(abs)
FORGE_EACH_UNARY(exp)
FORGE_EACH_UNARY(exp2)
FORGE_EACH_UNARY(log)
FORGE_EACH_UNARY(expm1)
FORGE_EACH_UNARY(log1p)
FORGE_EACH_UNARY(sqrt)
FORGE_EACH_UNARY(rsqrt)
FORGE_EACH_UNARY(reciprocal)
FORGE_EACH_UNARY(tanh)
FORGE_EACH_UNARY(floor)
FORGE_EACH_UNARY(ceil)
FORGE_EACH_UNARY(round)
FORGE_EACH_UNARY(sign)
FORGE_EACH_UNARY(sin)
FORGE_EACH_UNARY(cos)
FORGE_EACH_UNARY(relu)
FORGE_EACH_UNARY(sigmoid)
FORGE_EACH_UNARY(silu)
FORGE_EACH_UNARY(softplus)
FORGE_EACH_UNARY(logsigmoid)
FORGE_EACH_BINARY(add)
FORGE_EACH_BINARY(sub)
FORGE_EACH_BINARY(mul)
FORGE_EACH_BINARY(div)
FORGE_EACH_BINARY(ratio)
FORGE_EACH_BINARY(pow)
FORGE_EACH_BINARY(maximum)
FORGE_EACH_BINARY(minimum)

#undef FORGE_EACH_UNARY
#undef FORGE_EACH_BINARY

template <int W>
FORGE_DEVICE Vec<W> operator+(const Vec<W>& a, const Vec<W>& b) {
    return add(a, b);
}
template <int W>
FORGE_DEVICE Vec<W> operator-(const Vec<W>& a, const Vec<W>& b) {
    return sub(a, b);
}
template <int W>
FORGE_DEVICE Vec<W> operator*(const Vec<W>& a, const Vec<W>& b) {
    return mul(a, b);
}
template <int W>
FORGE_DEVICE Vec<W> operator/(const Vec<W>& a, const Vec<W>& b) {
    return div(a, b);
}
template <int W>
FORGE_DEVICE Vec<W> operator-(const Vec<W>& a) {
    return neg(a);
}

}  // namespace forge::cuda
