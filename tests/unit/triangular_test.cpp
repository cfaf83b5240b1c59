/// What the form of a value proves of its triangles.
#include "ir/triangular.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace forge::ir {
namespace {

/// The form of the last value of a function over x [C, C], b [C, 1], the identity I, L = tril(x), S = tril(x, -1),
/// U = I + S, c = tril(b).
Triangle form(const std::string& op, const std::string& type = "f32[C, C]") {
    const Function fn = parse_function(
        "func @f {\n"
        "  %x: f32[C, C] = param() {name=\"x\", role=input}\n"
        "  %b: f32[C, 1] = param() {name=\"b\", role=input}\n"
        "  %g: f32[C] = param() {name=\"g\", role=input}\n"
        "  %q: f32[C, K] = param() {name=\"q\", role=input}\n"
        "  %I: f32[C, C] = identity()\n"
        "  %L: f32[C, C] = tril(%x) {diagonal=0}\n"
        "  %S: f32[C, C] = tril(%x) {diagonal=-1}\n"
        "  %U: f32[C, C] = add(%I, %S)\n"
        "  %c: f32[C, 1] = tril(%b) {diagonal=0}\n"
        "  %r: " +
        type + " = " + op + "\n  return input \"r\" = %r\n}\n");
    return triangle_of(fn, fn.results[0].value);
}

TEST(Triangular, IsProvedByMasks) {
    EXPECT_EQ(form("tril(%x) {diagonal=0}"), Triangle::Lower);
    EXPECT_EQ(form("tril(%x) {diagonal=-1}"), Triangle::StrictLower);
    EXPECT_EQ(form("tril(%x) {diagonal=1}"), Triangle::Full);
    EXPECT_EQ(form("tril(%U) {diagonal=0}"), Triangle::UnitLower);
    EXPECT_EQ(form("triu(%x) {diagonal=0}"), Triangle::Full);
    EXPECT_EQ(form("decay_mask(%g)"), Triangle::Lower);
    EXPECT_EQ(form("decay_mask(%g) {exclusive=true}"), Triangle::StrictLower);
}

TEST(Triangular, FollowsSumsAndProducts) {
    EXPECT_EQ(form("add(%I, %S)"), Triangle::UnitLower);
    EXPECT_EQ(form("sub(%I, %S)"), Triangle::UnitLower);
    EXPECT_EQ(form("sub(%S, %I)"), Triangle::Lower);  // its diagonal is -1
    EXPECT_EQ(form("add(%I, %L)"), Triangle::Lower);
    EXPECT_EQ(form("add(%S, %S)"), Triangle::StrictLower);
    EXPECT_EQ(form("add(%I, %I)"), Triangle::Lower);
    EXPECT_EQ(form("add(%S, %x)"), Triangle::Full);
    EXPECT_EQ(form("mul(%S, %x)"), Triangle::StrictLower);
    EXPECT_EQ(form("mul(%x, %L)"), Triangle::Lower);
    EXPECT_EQ(form("mul(%S, %b)"), Triangle::StrictLower);
    EXPECT_EQ(form("mul(%U, %b)"), Triangle::Lower);
    EXPECT_EQ(form("mul(%U, %U)"), Triangle::UnitLower);
    EXPECT_EQ(form("neg(%U)"), Triangle::Lower);
    EXPECT_EQ(form("neg(%S)"), Triangle::StrictLower);
    EXPECT_EQ(form("exp(%L)"), Triangle::Full);  // exp(0) is 1
}

// tril of a column leaves all of it; spread over a row it fills the upper triangle.
TEST(Triangular, IsLostByBroadcasting) {
    EXPECT_EQ(form("mul(%x, %c)"), Triangle::Full);
    EXPECT_EQ(form("add(%L, %c)"), Triangle::Full);
    EXPECT_EQ(form("div(%c, %x)"), Triangle::Full);
}

TEST(Triangular, IsKeptByInverseAndConversions) {
    EXPECT_EQ(form("inverse(%U)"), Triangle::UnitLower);
    EXPECT_EQ(form("to(%U) {dtype=bf16}", "bf16[C, C]"), Triangle::UnitLower);
    EXPECT_EQ(form("cache_result(%S) {name=\"n\"}"), Triangle::StrictLower);
    EXPECT_EQ(form("permute(%L) {perm=[1, 0]}"), Triangle::Full);
    EXPECT_EQ(form("matmul(%q, %q) {trans_b=true}"), Triangle::Full);
}

}  // namespace
}  // namespace forge::ir
