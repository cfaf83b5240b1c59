// Vectors, elementary functions and conversions of the CPU device library, against the C library in
// double precision and the definitions of the formats, for the instruction set this file is
// compiled for.
#include "math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io.h"
#include "vec.h"

namespace forge::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Vec, SelectsAcrossTheDiagonalEvenNaN) {
    const vec nan = broadcast(kNaN);
    for (int l = 0; l < kWidth; ++l) {
        EXPECT_EQ(std::isnan(tril(nan, 5, 4, 1)[l]), 4 + l <= 6);
        EXPECT_EQ(std::isnan(triu(nan, 5, 4, 1)[l]), 4 + l >= 6);
        EXPECT_EQ(eye(5, 4)[l], 4 + l == 5 ? 1.0f : 0.0f);
        EXPECT_EQ(iota()[l], l);
    }
}

TEST(Vec, ReducesAndShiftsLanes) {
    alignas(64) float x[3 * kWidth];
    for (int i = 0; i < 3 * kWidth; ++i) x[i] = float(i);
    const vec v = load(x + 1);
    EXPECT_EQ(hsum(v), kWidth * (kWidth + 1) / 2);
    EXPECT_EQ(hmax(v), kWidth);
    EXPECT_TRUE(std::isnan(hmax(where(iota() == 2, broadcast(kNaN), v))));
    EXPECT_EQ(shift<1>(v)[0], 0);
    EXPECT_EQ(shift<1>(v)[1], 1);
    EXPECT_EQ(shift<-1>(v, -v)[0], 2);
    EXPECT_EQ(gather(x, 3)[1], 3);
    EXPECT_EQ(mask_to_float(logical_not(lt(v, broadcast(2.0f))))[1], 1);
}

/// The largest error of f in units of the last place, over a sample of all floats in [lo, hi].
template <class F, class Exact>
double max_ulp(F f, Exact exact, float lo, float hi) {
    double worst = 0;
    for (int64_t base = INT32_MIN; base < INT32_MAX - 4099 * kWidth; base += 4099 * kWidth) {
        const vec x = (vec)(int32_t(base) + iota() * 4099);
        const vec y = f(x);
        for (int l = 0; l < kWidth; ++l) {
            if (!(x[l] >= lo && x[l] <= hi)) continue;
            const double want = exact(double(x[l]));
            if (std::abs(want) < 1.2e-38 || std::abs(want) > 3.4e38) continue;
            const double error = std::abs(y[l] - want) / std::ldexp(1, std::ilogb(want) - 23);
            if (!(error <= worst)) worst = std::isnan(error) ? 1e30 : error;
        }
    }
    return worst;
}

TEST(Math, IsWithinTwoUlp) {
    EXPECT_LE(max_ulp([](vec x) { return exp(x); }, [](double x) { return std::exp(x); }, -200, 200), 1.5);
    EXPECT_LE(max_ulp([](vec x) { return exp2(x); }, [](double x) { return std::exp2(x); }, -200, 200), 1.5);
    EXPECT_LE(max_ulp([](vec x) { return log(x); }, [](double x) { return std::log(x); }, 0, kInf), 1.5);
    EXPECT_LE(max_ulp([](vec x) { return log1p(x); }, [](double x) { return std::log1p(x); }, -1, kInf), 2);
    EXPECT_LE(max_ulp([](vec x) { return expm1(x); }, [](double x) { return std::expm1(x); }, -kInf, 200), 2);
    EXPECT_LE(max_ulp([](vec x) { return tanh(x); }, [](double x) { return std::tanh(x); }, -kInf, kInf), 2);
    EXPECT_LE(max_ulp([](vec x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0, kInf), 0.501);
    EXPECT_LE(max_ulp([](vec x) { return rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }, 0, kInf), 1.5);
    const auto sigmoid64 = [](double x) { return 1 / (1 + std::exp(-x)); };
    EXPECT_LE(max_ulp([](vec x) { return sigmoid(x); }, sigmoid64, -87, kInf), 3);
    EXPECT_LE(max_ulp([](vec x) { return silu(x); }, [&](double x) { return x * sigmoid64(x); }, -87, 1e30f), 3.5);
    EXPECT_LE(max_ulp([](vec x) { return softplus(x); },
                      [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, -87, kInf),
              3);
}

TEST(Math, RoundsExactly) {
    const auto nearest = [](double x) { return std::nearbyint(x); };
    EXPECT_EQ(max_ulp([](vec x) { return floor(x); }, [](double x) { return std::floor(x); }, -kInf, kInf), 0);
    EXPECT_EQ(max_ulp([](vec x) { return ceil(x); }, [](double x) { return std::ceil(x); }, -kInf, kInf), 0);
    EXPECT_EQ(max_ulp([](vec x) { return round(x); }, nearest, -kInf, kInf), 0);
    for (const float x :
         {-2.5f, -1.5f, -1.0f, -0.5f, -0.25f, -0.0f, 0.0f, 0.5f, 0.75f, 1.5f, 2.5f, 8388607.5f, -8388608.5f, 3e9f}) {
        EXPECT_EQ(floor(broadcast(x))[0], std::floor(x)) << x;
        EXPECT_EQ(ceil(broadcast(x))[0], std::ceil(x)) << x;
        EXPECT_EQ(round(broadcast(x))[0], std::nearbyint(x)) << x;
        EXPECT_EQ(sign(broadcast(x))[0], x > 0 ? 1 : x < 0 ? -1 : 0) << x;
    }
    EXPECT_TRUE(std::isnan(floor(broadcast(kNaN))[0]) && std::isnan(sign(broadcast(kNaN))[0]));
    EXPECT_EQ(floor(broadcast(-kInf))[0], -kInf);
    EXPECT_EQ(count_from(7)[kWidth - 1], 6 + kWidth);
}

TEST(Math, HasPyTorchsEdges) {
    const auto at = [](auto f, float x) { return float(f(broadcast(x))[kWidth - 1]); };
#define AT(f, x) at([](vec t) { return f(t); }, x)
    EXPECT_EQ(AT(exp, -kInf), 0);
    EXPECT_EQ(AT(exp, kInf), kInf);
    EXPECT_EQ(AT(exp2, -1000), 0);
    EXPECT_EQ(AT(exp2, 128), kInf);
    EXPECT_EQ(AT(expm1, -kInf), -1);
    EXPECT_EQ(AT(expm1, kInf), kInf);
    EXPECT_EQ(AT(log, 0), -kInf);
    EXPECT_EQ(AT(log, kInf), kInf);
    EXPECT_TRUE(std::isnan(AT(log, -1)));
    EXPECT_NEAR(AT(log, 1e-45f), std::log(1.401298e-45), 1e-5);
    EXPECT_EQ(AT(log1p, -1), -kInf);
    EXPECT_EQ(AT(log1p, kInf), kInf);
    EXPECT_TRUE(std::isnan(AT(log1p, -2)));
    EXPECT_EQ(AT(sigmoid, -kInf), 0);
    EXPECT_EQ(AT(sigmoid, kInf), 1);
    EXPECT_EQ(AT(logsigmoid, -1000), -1000);
    EXPECT_EQ(AT(logsigmoid, -kInf), -kInf);
    EXPECT_EQ(AT(logsigmoid, kInf), 0);
    EXPECT_EQ(AT(softplus, 1000), 1000);
    EXPECT_EQ(AT(softplus, kInf), kInf);
    EXPECT_EQ(AT(softplus, -kInf), 0);
    EXPECT_EQ(AT(tanh, kInf), 1);
    EXPECT_EQ(AT(tanh, -kInf), -1);
    EXPECT_EQ(AT(relu, -kInf), 0);
    EXPECT_EQ(AT(rsqrt, 0), kInf);
    EXPECT_EQ(AT(abs, -3), 3);
    EXPECT_NEAR(AT(sin, 2), std::sin(2.0), 1e-7);
    EXPECT_NEAR(AT(cos, 2), std::cos(2.0), 1e-7);
    for (float y : {AT(exp, kNaN), AT(exp2, kNaN), AT(expm1, kNaN), AT(log, kNaN), AT(log1p, kNaN), AT(sigmoid, kNaN),
                    AT(logsigmoid, kNaN), AT(softplus, kNaN), AT(silu, kNaN), AT(tanh, kNaN), AT(relu, kNaN)}) {
        EXPECT_TRUE(std::isnan(y));
    }
#undef AT
    const vec one = broadcast(1.0f), nan = broadcast(kNaN);
    for (vec y : {maximum(one, nan), maximum(nan, one), minimum(one, nan), minimum(nan, one)}) {
        EXPECT_TRUE(std::isnan(y[0]));
    }
    EXPECT_EQ(maximum(one, -one)[0], 1);
    EXPECT_EQ(minimum(one, -one)[0], -1);
    EXPECT_FLOAT_EQ(pow(broadcast(2.0f), broadcast(0.5f))[1], std::sqrt(2.0f));
}

/// The value of a half-sized float with the given widths, by the definition.
double decode(int bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1) return mantissa ? kNaN : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T, class To, class From>
void check_conversions(int exponent_bits, To to_float, From from_float) {
    const int mantissa_bits = 15 - exponent_bits;
    const auto narrow1 = [&](float x) { return uint16_t(from_float(broadcast(x))[0]); };
    for (int bits = 0; bits < 65536; ++bits) {
        const float got = to_float(detail::narrow(broadcast(int32_t(bits))))[1];
        const double want = decode(bits, exponent_bits, mantissa_bits);
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got) && std::isnan(decode(narrow1(got), exponent_bits, mantissa_bits)));
            continue;
        }
        ASSERT_EQ(got, want) << bits;
        ASSERT_EQ(narrow1(got), bits);
        const double next = decode(bits + 1, exponent_bits, mantissa_bits);
        if ((bits & 0x7fff) == 0x7fff || !std::isfinite(next) || std::isinf(want)) continue;
        // A tie goes to the even neighbour; the floats beside it to the nearer one.
        const float middle = float((want + next) / 2);
        if (middle != (want + next) / 2) continue;
        ASSERT_EQ(narrow1(middle), bits + (bits & 1)) << bits;
        ASSERT_EQ(narrow1(std::nextafter(middle, float(want))), bits);
        ASSERT_EQ(narrow1(std::nextafter(middle, float(next))), bits + 1);
    }
    EXPECT_EQ(decode(narrow1(3.4028235e38f), exponent_bits, mantissa_bits), HUGE_VAL);
}

TEST(Conversions, CoverAllHalves) {
    using namespace detail;
    const auto widen_b = [](Halves x) { return bf16_to_float(x); };
    const auto widen_f = [](Halves x) { return f16_to_float(x); };
    const auto widen_p = [](Halves x) { return f16_to_float_portable(x); };
    check_conversions<bf16>(8, widen_b, [](vec x) { return float_to_bf16(x); });
    check_conversions<f16>(5, widen_f, [](vec x) { return float_to_f16(x); });
    check_conversions<f16>(5, widen_p, [](vec x) { return float_to_f16_portable(x); });
}

}  // namespace
}  // namespace forge::cpu
