/// What may have zeros behind an axis's end, and what would be spoilt by them.
#include "graph/padding.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace forge::graph {
namespace {

/// A function over q, k [C, K], v [C, V], their gates g [C, K], per-token numbers b [C], pairs [C, 2*K] and the
/// state s [K, V]. The last value is the result.
ir::Function function(const std::string& ops, const char* role) {
    const std::string text =
        "func @f {\n"
        "  %q: f32[C, K] = param() {name=\"q\", role=input}\n"
        "  %k: f32[C, K] = param() {name=\"k\", role=input}\n"
        "  %v: f32[C, V] = param() {name=\"v\", role=input}\n"
        "  %g: f32[C, K] = param() {name=\"g\", role=input}\n"
        "  %b: f32[C, 1] = param() {name=\"b\", role=input}\n"
        "  %pairs: f32[C, 2*K] = param() {name=\"pairs\", role=input}\n"
        "  %s: f32[K, V] = param() {name=\"s\", role=state}\n"
        "  %two: f32[] = constant() {value=2}\n";
    return ir::parse_function(text + ops + "  return " + role + " \"r\" = %r\n}\n");
}

/// The op for which K cannot be longer, or "" if there is none.
std::string spoilt(const std::string& ops, const char* role = "input") {
    const ir::Function fn = function(ops, role);
    const auto v = spoils_padding(fn, "K", 96);
    return v ? ir::info(fn.op(v->value).code).name : "";
}

/// What is replaced behind the end, by number of result: the shapes, in order, or "nothing" if that cannot help.
std::string replaced(const std::string& ops, const char* role = "input") {
    const auto fn = with_masked_ends(function(ops, role), "K", 96);
    if (!fn) return "nothing";
    EXPECT_FALSE(spoils_padding(*fn, "K", 96));
    std::string shapes;
    for (const ir::Op& op : fn->ops)
        if (op.code == ir::Opcode::Where) shapes += to_string(op.type.shape);
    return shapes;
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

// What is no maximum stands behind the end of all that reads it: its square would be infinite there, and is replaced.
TEST(Padding, MultipliesNoZerosWithWhatIsNoMaximum) {
    const std::string softmax =
        "  %most: f32[C] = amax(%q) {dim=1}\n  %u: f32[C, 1] = unsqueeze(%most) {dim=1}\n"
        "  %d: f32[C, K] = sub(%q, %u)\n  %e: f32[C, K] = exp(%d)\n  %a: f32[C, C] = matmul(%e, %k) {trans_b=true}\n";
    EXPECT_EQ(replaced(softmax + "  %r: f32[C, C] = add(%a, %two)\n"), "[C, K]");
    for (const char* square : {"mul(%q, %q)", "maximum(%q, %q)", "sub(%q, %q)"})
        EXPECT_EQ(replaced(softmax + "  %x: f32[C, K] = " + square +
                           "\n  %y: f32[C, C] = matmul(%x, %k) {trans_b=true}\n  %r: f32[C, C] = add(%a, %y)\n"),
                  "[C, K][C, K]")
            << square;
    EXPECT_EQ(replaced(softmax + "  %x: f32[C, K] = maximum(%q, %two)\n"
                                 "  %y: f32[C, C] = matmul(%x, %k) {trans_b=true}\n  %r: f32[C, C] = add(%a, %y)\n"),
              "[C, K]");
}

// What may be no number stays behind the end, unless something is summed or multiplied along the axis.
TEST(Padding, LeavesWhatIsNoNumberBehindTheEnd) {
    const std::string large = "  %x: f32[C, K] = add(%k, %b)\n  %e: f32[C, K] = exp(%x)\n";
    for (const char* op : {"div(%q, %k)", "rsqrt(%k)", "log(%k)"}) {
        const std::string x = std::string("  %x: f32[C, K] = ") + op + "\n";
        EXPECT_EQ(spoilt(x + "  %r: f32[C, K] = mul(%x, %q)\n"), "");
        EXPECT_EQ(spoilt(x + "  %r: f32[C, C] = matmul(%x, %q) {trans_b=true}\n"), "matmul");
        EXPECT_EQ(spoilt(x + "  %y: f32[C, K] = mul(%x, %q)\n  %r: f32[C] = sum(%y) {dim=1}\n"), "sum");
        EXPECT_EQ(spoilt(x + "  %r: f32[K, V] = matmul(%x, %v) {trans_a=true}\n", "state"), "matmul");
    }
    EXPECT_EQ(spoilt(large + "  %r: f32[C, K] = mul(%e, %b)\n"), "");
    EXPECT_EQ(spoilt(large + "  %r: f32[C, V] = matmul(%e, %s)\n"), "matmul");  // of zeros and infinite numbers
    EXPECT_EQ(spoilt("  %x: f32[C, K] = div(%q, %b)\n  %r: f32[C] = sum(%x) {dim=1}\n"), "");
    EXPECT_EQ(spoilt("  %x: f32[C, K] = add(%k, %two)\n  %y: f32[C, K] = rsqrt(%x)\n"
                     "  %r: f32[C, V] = matmul(%y, %s)\n"),
              "");
    EXPECT_EQ(spoilt("  %x: f32[C, K] = rsqrt(%k)\n  %y: f32[C, K] = linear_scan(%x, %q)\n"
                     "  %r: f32[K] = select(%y) {dim=0, start=-1}\n",
                     "state"),
              "linear_scan");
}

TEST(Padding, KnowsWhatTakesTurnsAlongTheAxis) {
    const std::string even = "  %e: f32[C, K] = slice(%pairs) {dim=1, start=0, step=2}\n",
                      odd = "  %o: f32[C, K] = slice(%pairs) {dim=1, start=1, step=2}\n";
    EXPECT_EQ(spoilt(even + odd + "  %r: f32[C, 2*K] = interleave(%o, %e) {dim=1}\n"), "");
    EXPECT_EQ(spoilt(even + "  %r: f32[C] = sum(%e) {dim=1}\n"), "");
    EXPECT_EQ(spoilt("  %r: f32[C, 2*K] = repeat_interleave(%k) {dim=1, count=2}\n"), "");
    EXPECT_EQ(spoilt("  %e: f32[C, K] = part(%pairs) {dim=1, start=0, count=2}\n  %r: f32[C] = sum(%e) {dim=1}\n"),
              "part");
}

TEST(MaskedEnds, ReplacesWhatIsSummedOrMultipliedAlongTheAxis) {
    EXPECT_EQ(replaced("  %e: f32[C, K] = exp(%k)\n  %r: f32[C] = sum(%e) {dim=1}\n"), "[C, K]");
    EXPECT_EQ(replaced("  %e: f32[C, K] = exp(%k)\n  %d: f32[C, K] = exp(%q)\n"
                       "  %r: f32[C, C] = matmul(%e, %d) {trans_b=true}\n"),
              "[C, K]");
    EXPECT_EQ(replaced("  %r: f32[C, K] = exp(%k)\n"), "");
    EXPECT_EQ(replaced("  %e: f32[C, 2*K] = exp(%pairs)\n  %r: f32[C] = sum(%e) {dim=1}\n"), "[C, 2*K]");
}

// Keys, which make the state, rather than queries and the state, which is larger.
TEST(MaskedEnds, ReplacesAsFewNumbersAsItCan) {
    EXPECT_EQ(replaced("  %e: f32[C, K] = exp(%k)\n  %d: f32[C, K] = exp(%q)\n"
                       "  %m: f32[C, C] = matmul(%d, %e) {trans_b=true}\n  %w: f32[C, V] = matmul(%m, %v)\n"
                       "  %u: f32[K, V] = matmul(%e, %w) {trans_a=true}\n  %r: f32[K, V] = add(%s, %u)\n",
                       "state"),
              "[C, K]");
}

TEST(MaskedEnds, ReplacesWhatIsNoMaximum) {
    EXPECT_EQ(replaced("  %m: f32[C] = amax(%k) {dim=1}\n  %c: f32[C, 1] = unsqueeze(%m) {dim=1}\n"
                       "  %x: f32[C, K] = sub(%k, %c)\n  %e: f32[C, K] = exp(%x)\n  %r: f32[C] = sum(%e) {dim=1}\n"),
              "[C, K]");
}

TEST(MaskedEnds, CannotHelpWhereTheAxissEndIsSought) {
    EXPECT_EQ(replaced("  %r: f32[C] = select(%k) {dim=1, start=-1}\n"), "nothing");
    EXPECT_EQ(replaced("  %r: f32[C, 2*K] = concat(%k, %q) {dim=1}\n"), "nothing");
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
