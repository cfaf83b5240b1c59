/// Elementary functions of kernels whose operands have 16 bits (portable/math.h, FORGE_FAST_EXP), with the hardware's
/// approximations taken as exact: what is left is the reduction of angles, the series near 0, and division.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/cuda/emulated/blocks.h"
#include "tests/cuda/emulated/program.h"

namespace forge::tests {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

/// What an expression of x and y is, number by number.
std::vector<float> values_of(const std::string& expression, std::vector<float> x, std::vector<float> y = {}) {
    static int count = 0;
    y.resize(x.size());
    const std::string source = R"(
#define FORGE_TENSORS 1
#define FORGE_THREADS 32
#define FORGE_FAST_EXP
#include "cuda/warpgroup/kernel.h"
using namespace forge::cuda;
extern "C" void forge_values(const float* xs, const float* ys, float* values, int count) {
    for (int i = lane(); i < count; i += 32) {
        [[maybe_unused]] const float x = xs[i], y = ys[i];
        values[i] = )" + expression +
                               ";\n    }\n}\n";
    const emulated::Device device;
    const emulated::Library library(device.build("functions_" + std::to_string(count++), source));
    const auto kernel = reinterpret_cast<void (*)(const float*, const float*, float*, int)>(  // NOLINT: dlsym
        library.kernel("forge_values"));
    std::vector<float> values(x.size());
    emulated::run(library.machine(), {.blocks = 1, .threads = 32},
                  [&] { kernel(x.data(), y.data(), values.data(), static_cast<int>(x.size())); });
    return values;
}

/// Of both signs, from 2^-20 to 2^most.
std::vector<float> samples(int most) {
    std::vector<float> x = {0};
    for (int exponent = -20; exponent < most; ++exponent)
        for (int i = 0; i < 64; ++i) {
            const float magnitude = std::ldexp(1 + static_cast<float>(i) / 64, exponent);
            x.push_back(magnitude), x.push_back(-magnitude);
        }
    return x;
}

TEST(HalfFunctions, SinesAreOfAnglesLessWholeTurns) {
    const std::vector<float> x = samples(39);
    const auto sines = values_of("scalar::sin(x)", x), cosines = values_of("scalar::cos(x)", x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double angle = x[i], bound = 0x1p-20 + 0x1p-47 * std::abs(angle);
        EXPECT_NEAR(sines[i], std::sin(angle), std::min(bound, std::max(0x1p-40, std::abs(angle) * bound))) << angle;
        EXPECT_NEAR(cosines[i], std::cos(angle), bound) << angle;
    }
    for (const char* function : {"scalar::sin(x)", "scalar::cos(x)"})
        for (const float value : values_of(function, {kInf, -kInf, kNaN})) EXPECT_TRUE(std::isnan(value)) << function;
}

TEST(HalfFunctions, HyperbolicTangentsAndExponentials) {
    const std::vector<float> x = samples(7);
    const auto tangents = values_of("scalar::tanh(x)", x), exponentials = values_of("scalar::exp(x)", x),
               less_one = values_of("scalar::expm1(x)", x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double t = std::tanh(static_cast<double>(x[i])), e = std::exp(static_cast<double>(x[i]));
        EXPECT_NEAR(tangents[i], t, std::abs(t) * 0x1p-20) << x[i];
        if (e > 0x1p-126 && e < 0x1p127)
            EXPECT_NEAR(exponentials[i], e, e * (0x1p-22 + std::abs(x[i]) * 0x1p-23)) << x[i];
        if (e < 0x1p127)
            EXPECT_NEAR(less_one[i], std::expm1(static_cast<double>(x[i])),
                        std::max(e, std::abs(e - 1)) * 0x1p-16 + 0x1p-22 * std::abs(x[i]))
                << x[i];
    }
    const auto ends = values_of("scalar::tanh(x)", {kInf, -kInf, kNaN});
    EXPECT_EQ(ends[0], 1);
    EXPECT_EQ(ends[1], -1);
    EXPECT_TRUE(std::isnan(ends[2]));
    const auto decays = values_of("scalar::exp(x)", {-kInf, kInf, -1000, 1000});
    EXPECT_EQ(decays, (std::vector<float>{0, kInf, 0, kInf}));
}

// Quotients of whole numbers stay exact, so that their floor is right, and 0, inf and NaN are what IEEE makes of them.
TEST(HalfFunctions, DivisionIsExactWhereTheQuotientIs) {
    std::vector<float> x, y;
    std::size_t exact = 0;  // how many quotients are whole numbers
    for (int divisor = 1; divisor < 200; ++divisor)
        for (int quotient = -40; quotient < 40; ++quotient)
            x.push_back(static_cast<float>(divisor * quotient)), y.push_back(static_cast<float>(divisor)), ++exact;
    for (const float a : {0.0F, -0.0F, 1.0F, -3.0F, 1e-38F, 1e30F, 3e38F, kInf, -kInf, kNaN})
        for (const float b : {0.0F, 1.0F, -7.0F, 1e-30F, 2e-38F, 1e38F, 3e38F, kInf, -kInf, kNaN})
            x.push_back(a), y.push_back(b);
    const auto quotients = values_of("scalar::div(x, y)", x, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float want = x[i] / y[i];
        if (std::isnan(want)) EXPECT_TRUE(std::isnan(quotients[i])) << x[i] << " / " << y[i];
        else if (std::abs(want) > 0x1p-120F || want == 0) EXPECT_FLOAT_EQ(quotients[i], want) << x[i] << " / " << y[i];
        if (i < exact) EXPECT_EQ(quotients[i], want) << x[i] << " / " << y[i];
    }
}

}  // namespace
}  // namespace forge::tests
