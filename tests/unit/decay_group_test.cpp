/// Decay groups: what is made together, and that it stands together.
#include "tile/decay_group.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace forge::tile {
namespace {

using ir::ValueId;

ir::Function parsed(const std::string& body) {
    return ir::parse_function(
        "func @f {\n"
        "  %q: f32[64, 128] = param() {name=\"q\", role=input} @ operand(0, parts=1)\n"
        "  %k: f32[64, 128] = param() {name=\"k\", role=input} @ operand(0, parts=1)\n"
        "  %g: f32[64, 128] = param() {name=\"g\", role=input} @ spill(0, [])\n"
        "  %one: f32[] = constant() {value=1} @ reg\n" +
            body + "}\n",
        "test");
}

const char* const kTwoProducts =
    "  %a: f32[64, 64] = decay_matmul(%k, %k, %g) @ fragment\n"
    "  %t: f32[64, 64] = tril(%a) {diagonal=-1} @ fragment\n"
    "  %b: f32[64, 64] = decay_matmul(%q, %k, %g) @ fragment\n"
    "  %n: f32[128] = sum(%g) {dim=0} @ tile(0, [1])\n"
    "  %r: f32[64, 128] = decay_rows(%k, %g, %one) {reverse=true, exclusive=true} @ spill(0, [])\n"
    "  %s: f32[64, 128] = decay_rows(%q, %g, %one) @ spill(0, [])\n"
    "  return spill \"t\" = %t, spill \"b\" = %b, spill \"n\" = %n, spill \"r\" = %r, spill \"s\" = %s\n";

TEST(DecayGroup, HoldsAllThatFollowsFromTheSameDecays) {
    const ir::Function fn = parsed(kTwoProducts);
    const auto groups = decay_groups(fn);
    ASSERT_EQ(groups.size(), 1U);
    const DecayGroup& group = groups[0];
    ASSERT_EQ(group.factors.size(), 2U);
    EXPECT_EQ(group.factors[0].rows, ir::kNoValue);  // nothing wants k from the chunk's beginning
    EXPECT_EQ(group.factors[1].rows, fn.result("s", ir::Role::Spill));
    EXPECT_EQ(group.rows, fn.result("r", ir::Role::Spill));
    EXPECT_EQ(group.sum, fn.result("n", ir::Role::Spill));
}

TEST(DecayGroup, IsGatheredAheadOfItsReaders) {
    const ir::Function fn = gathered(parsed(kTwoProducts));
    const auto groups = decay_groups(fn);
    ASSERT_EQ(groups.size(), 1U);
    ValueId expected = groups[0].head();
    for (const ValueId v : groups[0].members()) EXPECT_EQ(v, expected++) << ir::print(fn);
    EXPECT_GE(fn.result("t", ir::Role::Spill), expected);
}

TEST(DecayGroup, LeavesOutWhatDependsOnAProduct) {
    const ir::Function fn = parsed(
        "  %a: f32[64, 64] = decay_matmul(%q, %k, %g) @ fragment\n"
        "  %p: f32[64, 128] = matmul(%a, %q) @ operand(0, parts=1)\n"
        "  %b: f32[64, 64] = decay_matmul(%p, %k, %g) @ fragment\n"
        "  return spill \"a\" = %a, spill \"b\" = %b\n");
    EXPECT_EQ(decay_groups(fn).size(), 2U);
}

TEST(DecayGroup, ReadsWhereItLiesOnlyWhatNothingElseReads) {
    const ir::Function two = parsed(kTwoProducts);
    EXPECT_TRUE(only_decays(two, two.param("g")));
    EXPECT_FALSE(only_first_factor(two, two.param("q")));  // k is another
    const ir::Function one = parsed(
        "  %a: f32[64, 64] = decay_matmul(%q, %k, %g) @ fragment\n"
        "  %e: f32[64, 128] = exp(%g) @ tile(0, [132, 1])\n"
        "  return spill \"a\" = %a, spill \"e\" = %e\n");
    EXPECT_TRUE(only_first_factor(one, one.param("q")));
    EXPECT_FALSE(only_first_factor(one, one.param("k")));
    EXPECT_FALSE(only_decays(one, one.param("g")));
}

}  // namespace
}  // namespace forge::tile
