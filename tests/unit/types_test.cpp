/// Element types, dimensions, shapes and locations as they print, and single elements as they are stored.
#include "forge/types.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "check/element.h"
#include "forge/error.h"

namespace forge::tests {
namespace {

TEST(Types, Print) {
    auto [T, H, K] = dims("T", "H", "K");
    EXPECT_EQ(to_string(Shape{2 * T, H, K, 4}), "[2*T, H, K, 4]");
    EXPECT_EQ(to_string(Shape{}), "[]");
    EXPECT_EQ(to_string(3 * (2 * T)), "6*T");
    EXPECT_EQ(to_string(BF16), "bf16");
    EXPECT_EQ(to_string(Location("a.cpp", 3, 14)), "a.cpp:3:14");
    EXPECT_EQ(to_string(Location()), "<unknown>");
}

TEST(Types, PlacesShareTheNameOfAFileThatIsGone) {
    const Location first(std::string("a file whose name is long.cpp"), 1, 2);
    const Location second(std::string("a file whose name is long.cpp"), 3, 4);
    EXPECT_EQ(to_string(first), "a file whose name is long.cpp:1:2");
    EXPECT_EQ(first.file.data(), second.file.data());
}

TEST(Types, KnowTheirSizeAndKind) {
    EXPECT_EQ(size_in_bytes(DType::Bool), 1U);
    EXPECT_EQ(size_in_bytes(BF16), 2U);
    EXPECT_EQ(size_in_bytes(F16), 2U);
    EXPECT_EQ(size_in_bytes(F32), 4U);
    EXPECT_EQ(size_in_bytes(DType::I32), 4U);
    EXPECT_EQ(size_in_bytes(F64), 8U);
    EXPECT_EQ(size_in_bytes(DType::I64), 8U);
    EXPECT_TRUE(is_half(BF16) && is_half(F16) && !is_half(F32));
    EXPECT_TRUE(is_float(F64) && !is_float(DType::I32) && !is_float(DType::Bool));
}

TEST(Types, DimensionsCompareByFactorAndSymbol) {
    auto [T, K] = dims("T", "K");
    EXPECT_EQ(T, Dim("T"));
    EXPECT_NE(T, 2 * T);
    EXPECT_NE(T, K);
    EXPECT_NE(Dim(4), T);
    EXPECT_TRUE(Dim(4).is_constant());
}

TEST(Diagnostic, PrintsOnlyWhatItHas) {
    EXPECT_EQ(to_string(Diagnostic{"what", "", "", {}, ""}), "error: what");
    EXPECT_EQ(to_string(Diagnostic{"what", "a", "b", {"f.cpp", 1, 2}, "do this"}),
              "f.cpp:1:2: error: what\n    expected: a\n    got:      b\n    hint:     do this");
    const CompileError two({{"first", "", "", {}, ""}, {"second", "", "", {}, ""}});
    EXPECT_STREQ(two.what(), "error: first\nerror: second");
}

double stored(DType dtype, double value) {
    std::array<std::byte, 8> memory{};
    check::store(memory.data(), dtype, value);
    return check::load(memory.data(), dtype);
}

TEST(Element, IsRoundedToNearestEven) {
    EXPECT_EQ(stored(BF16, 1 + 0x1p-8), 1);               // a tie goes to the even neighbour
    EXPECT_EQ(stored(BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);  // the other tie too
    EXPECT_EQ(stored(BF16, 1 + 0x1.01p-8), 1 + 0x1p-7);
    EXPECT_EQ(stored(F16, 1 + 0x1p-11), 1);
    EXPECT_EQ(stored(F16, 65519), 65504);
    EXPECT_EQ(stored(F16, 65520), HUGE_VAL);
    EXPECT_EQ(stored(F16, 0x1p-24), 0x1p-24);  // subnormal
    EXPECT_EQ(stored(F16, 0x1p-25), 0);
    EXPECT_EQ(stored(F32, 1 + 0x1p-25), 1);
    EXPECT_EQ(stored(DType::I32, -7), -7);
    EXPECT_EQ(stored(DType::I64, 0x1p40), 0x1p40);
    for (const DType dtype : {BF16, F16, F32, F64}) {
        EXPECT_EQ(stored(dtype, -HUGE_VAL), -HUGE_VAL);
        EXPECT_TRUE(std::isnan(stored(dtype, std::numeric_limits<double>::quiet_NaN())));
        EXPECT_TRUE(std::signbit(stored(dtype, -0.0)));
    }
}

}  // namespace
}  // namespace forge::tests
