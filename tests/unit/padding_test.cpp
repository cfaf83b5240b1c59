/// What may have zeros behind an axis's end, and what would be spoilt by them.
#include "graph/padding.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace forge::graph {
namespace {

/// Of functions over q, k [C, K], v [C, V], their gates g [C, K], per-token numbers b [C] and the state s [K, V]: the
/// op for which K cannot be longer, or "" if there is none. The last value is the result.
std::string spoilt(const std::string& ops, const char* role = "input") {
    std::string text =
        "func @f {\n"
        "  %q: f32[C, K] = param() {name=\"q\", role=input}\n"
        "  %k: f32[C, K] = param() {name=\"k\", role=input}\n"
        "  %v: f32[C, V] = param() {name=\"v\", role=input}\n"
        "  %g: f32[C, K] = param() {name=\"g\", role=input}\n"
        "  %b: f32[C, 1] = param() {name=\"b\", role=input}\n"
        "  %s: f32[K, V] = param() {name=\"s\", role=state}\n"
        "  %two: f32[] = constant() {value=2}\n";
    const ir::Function fn = ir::parse_function(text + ops + "  return " + role + " \"r\" = %r\n}\n");
    const auto v = spoils_padding(fn, "K");
    return v ? ir::info(fn.op(*v).code).name : "";
}

std::string keys(const std::string& features, const std::string& more = "") {
    return "  %f: f32[C, K] = " + features + "\n" + more + "  %r: f32[K, V] = matmul(%f, %v) {trans_a=true}\n";
}

TEST(Padding, HarmsNoProductsOfZeros) {
    EXPECT_EQ(spoilt("  %r: f32[C, C] = matmul(%q, %k) {trans_b=true}\n"), "");
    EXPECT_EQ(spoilt("  %r: f32[C, V] = matmul(%q, %s)\n"), "");
    EXPECT_EQ(spoilt(keys("mul(%k, %b)"), "state"), "");
    EXPECT_EQ(spoilt(keys("silu(%k)"), "state"), "");
    EXPECT_EQ(spoilt(keys("relu(%k)"), "state"), "");
    EXPECT_EQ(spoilt("  %G: f32[C, K] = cumsum(%g) {dim=0}\n  %e: f32[C, K] = exp(%G)\n  %f: f32[C, K] = mul(%q, %e)\n"
                     "  %r: f32[C, V] = matmul(%f, %s)\n"),
              "");
}

TEST(Padding, MayHoldWhatIsOnlyMultipliedWithZeros) {
    EXPECT_EQ(spoilt("  %e: f32[C, K] = exp(%k)\n  %r: f32[C, C] = matmul(%e, %q) {trans_b=true}\n"), "");
    EXPECT_EQ(spoilt("  %e: f32[C, K] = sigmoid(%k)\n  %r: f32[C, K] = mul(%e, %b)\n"), "");
}

TEST(Padding, SpoilsWhatIsNotZeroBehindTheEnd) {
    EXPECT_EQ(spoilt("  %e: f32[C, K] = exp(%k)\n  %d: f32[C, K] = exp(%q)\n"
                     "  %r: f32[C, C] = matmul(%e, %d) {trans_b=true}\n"),
              "matmul");
    EXPECT_EQ(spoilt(keys("exp(%k)"), "state"), "matmul");
    EXPECT_EQ(spoilt("  %r: f32[K, V] = add(%s, %two)\n", "state"), "add");
    EXPECT_EQ(spoilt("  %e: f32[C, K] = exp(%k)\n  %r: f32[C] = sum(%e) {dim=1}\n"), "sum");
}

TEST(Padding, SpoilsWhatIsNoNumberBehindTheEnd) {
    EXPECT_EQ(spoilt("  %r: f32[C, K] = div(%q, %k)\n"), "div");
    EXPECT_EQ(spoilt("  %r: f32[C, K] = rsqrt(%k)\n"), "rsqrt");
    EXPECT_EQ(spoilt("  %r: f32[C, K] = log(%k)\n"), "log");
    EXPECT_EQ(spoilt("  %x: f32[C, K] = mul(%k, %b)\n  %r: f32[C, K] = exp(%x)\n"), "exp");  // b may be infinite
    EXPECT_EQ(spoilt("  %x: f32[C, K] = add(%k, %b)\n  %r: f32[C, K] = exp(%x)\n"), "exp");  // or large
    EXPECT_EQ(spoilt("  %r: f32[C, K] = div(%q, %b)\n"), "");
    EXPECT_EQ(spoilt("  %x: f32[C, K] = add(%k, %two)\n  %r: f32[C, K] = rsqrt(%x)\n"), "");
}

TEST(Padding, SpoilsWhatGoesByTheAxissEnd) {
    EXPECT_EQ(spoilt("  %r: f32[C] = amax(%k) {dim=1}\n"), "amax");
    EXPECT_EQ(spoilt("  %r: f32[C, K] = cumsum(%k) {dim=1, reverse=true}\n"), "cumsum");
    EXPECT_EQ(spoilt("  %r: f32[C] = select(%k) {dim=1, start=-1}\n"), "select");
    EXPECT_EQ(spoilt("  %r: f32[C] = select(%k) {dim=1, start=3}\n"), "");
    EXPECT_EQ(spoilt("  %r: f32[C, 2*K] = concat(%k, %q) {dim=1}\n"), "concat");
    EXPECT_EQ(spoilt("  %r: f32[C] = sum(%k) {dim=1}\n"), "");
}

// A gate that is made of data: its sign says that what decays stays finite.
TEST(Padding, KnowsSignsOfGates) {
    const std::string gate =
        "  %a: f32[C, 1] = exp(%b)\n  %p: f32[C, K] = softplus(%g)\n  %h: f32[C, K] = mul(%p, %a)\n";
    EXPECT_EQ(spoilt(gate + "  %n: f32[C, K] = neg(%h)\n  %r: f32[C, C] = decay_matmul(%q, %k, %n)\n"), "");
    EXPECT_EQ(spoilt("  %p: f32[C, K] = logsigmoid(%g)\n  %r: f32[C, C] = decay_matmul(%q, %k, %p)\n"), "");
    EXPECT_EQ(spoilt("  %p: f32[C, K] = softplus(%g)\n  %r: f32[C, C] = decay_matmul(%q, %k, %p)\n"), "decay_matmul");
}

}  // namespace
}  // namespace forge::graph
