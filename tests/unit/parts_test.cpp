/// Values taken apart and put together: what the interpreter makes of them, by hand; and the sizes that they need.
#include <gtest/gtest.h>

#include "forge/error.h"
#include "interp/interp.h"
#include "ir/sizes.h"
#include "ir/text.h"

namespace forge::ir {
namespace {

/// What a function of x [2, 6] = 0, 1, …, 11 makes, in numbers.
interp::Value made(const std::string& ops, const std::string& result) {
    interp::Value x{{2, 6}, {}};
    for (int i = 0; i < 12; ++i) x.data.push_back(i);
    const Function fn = parse_function("func @f { %x: f32[R, 2*K] = param() {name=\"x\", role=input}\n" + ops +
                                       "\n return input \"y\" = %" + result + " }");
    return interp::evaluate(fn, {{"x", x}}, {{"R", 2}, {"K", 3}})[0];
}

using Numbers = std::vector<double>;

TEST(Parts, AreTakenFromTheirAxis) {
    EXPECT_EQ(made("%y: f32[R, K] = part(%x) {dim=1, start=1, count=2}", "y").data, (Numbers{3, 4, 5, 9, 10, 11}));
    EXPECT_EQ(made("%y: f32[R, 2] = slice(%x) {dim=-1, start=1, step=3, length=2}", "y").data, (Numbers{1, 4, 7, 10}));
    EXPECT_EQ(made("%y: f32[R, 2] = slice(%x) {dim=1, start=-3, step=1, length=2}", "y").data, (Numbers{3, 4, 9, 10}));
}

TEST(Parts, ArePutTogether) {
    const char* halves =
        "%a: f32[R, K] = part(%x) {dim=1, start=0, count=2}\n"
        "%b: f32[R, K] = part(%x) {dim=1, start=1, count=2}\n";
    EXPECT_EQ(made(std::string(halves) + "%y: f32[R, 3*K] = concat(%b, %a, %b) {dim=1}", "y").data,
              (Numbers{3, 4, 5, 0, 1, 2, 3, 4, 5, 9, 10, 11, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(made(std::string(halves) + "%y: f32[R, 2*K] = interleave(%b, %a) {dim=1}", "y").data,
              (Numbers{3, 0, 4, 1, 5, 2, 9, 6, 10, 7, 11, 8}));
    EXPECT_EQ(made(std::string(halves) + "%y: f32[2*R, K] = interleave(%b, %a) {dim=0}", "y").data,
              (Numbers{3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8}));
    EXPECT_EQ(made(std::string(halves) + "%y: f32[2*R, K] = concat(%b, %a) {dim=0}", "y").data,
              (Numbers{3, 4, 5, 9, 10, 11, 0, 1, 2, 6, 7, 8}));
}

TEST(Parts, CountAndMultiply) {
    EXPECT_EQ(made("%y: f32[2*K] = arange()", "y").data, (Numbers{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(made("%y: f32[] = size() {name=\"K\", count=2}", "y").data, (Numbers{6}));
    EXPECT_EQ(made("%y: f32[R, 2*K] = cumprod(%x) {dim=1}", "y").data,
              (Numbers{0, 0, 0, 0, 0, 0, 6, 42, 336, 3024, 30240, 332640}));
    EXPECT_EQ(made("%y: f32[R, 2*K] = cumprod(%x) {dim=0}", "y").data,
              (Numbers{0, 1, 2, 3, 4, 5, 0, 7, 16, 27, 40, 55}));
}

TEST(Sizes, AreTheLeastThatSlicesNeed) {
    const Function fn = parse_function(
        "func @f { %x: f32[2*K, V] = param() {name=\"x\", role=input}\n"
        "%a: f32[5, V] = slice(%x) {dim=0, start=2, step=2, length=5}\n"
        "%b: f32[2*K] = select(%x) {dim=1, start=-3}\n"
        "%n: f32[] = size() {name=\"K\", count=2}\n"
        "return input \"a\" = %a, input \"b\" = %b, input \"n\" = %n }");
    const auto least = least_sizes(fn);
    EXPECT_EQ(least.at("K").size, 6);
    EXPECT_EQ(least.at("V").size, 3);
    const Function bound = with_bound_sizes(fn, {{"K", 6}, {"V", 3}});
    EXPECT_EQ(bound.op(bound.results[2].value).attrs.value, 12);
    try {
        with_bound_sizes(fn, {{"K", 5}, {"V", 3}});
        FAIL() << "x has 10 rows, of which the slice takes the eleventh";
    } catch (const CompileError& error) {
        EXPECT_NE(std::string(error.what()).find("slice: not within the axis: K is 5"), std::string::npos)
            << error.what();
        EXPECT_NE(std::string(error.what()).find("K of at least 6"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace forge::ir
