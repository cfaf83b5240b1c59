/// Which states have a scan of their own ahead of all else, and in which groups; what is left of the program for the
/// others; what of a tile's values each of two warp groups makes for itself, and which values each reader makes again.
#include "graph/early_states.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "ir/text.h"
#include "tests/support/entries.h"
#include "tile/own_values.h"
#include "tile/remade_values.h"

namespace forge::tests {
namespace {

using Names = std::set<std::string>;
using Groups = std::vector<Names>;

ir::Function program_of(const char* name) {
    return graph::optimize(frontend::join(graph::with_phases(program_named(name).make().define())));
}

TEST(EarlyStates, NeedOnlyOneAnother) {
    EXPECT_EQ(graph::early_states(program_of("normalised"), {"z"}), Names{"z"});
    EXPECT_EQ(graph::early_states(program_of("running_maximum"), {"m"}), Names{"m"});
    EXPECT_EQ(graph::early_states(program_of("stabilised_mlstm"), {"m", "n"}), (Names{"m", "n"}));
    // n is scaled by what m says, so that it alone is none.
    EXPECT_EQ(graph::early_states(program_of("stabilised_mlstm"), {"n"}), Names{});
    EXPECT_EQ(graph::early_states(program_of("heavy_ball"), {"average"}), Names{});
}

TEST(EarlyStates, AreInGroupsWhereOneAddsMatricesOfTokensMadeOfAnother) {
    EXPECT_EQ(graph::early_groups(program_of("normalised"), {"z"}), Groups{{"z"}});
    EXPECT_EQ(graph::early_groups(program_of("stabilised_mlstm"), {"m", "n"}), (Groups{{"m"}, {"n"}}));
    EXPECT_EQ(graph::early_groups(program_of("stabilised_mlstm"), {}), Groups{});
}

TEST(EarlyStates, AreSpillsToWhatIsLeft) {
    const ir::Function program = program_of("normalised"), rest = graph::without_early_states(program, {"z"});
    EXPECT_EQ(rest.ops.size(), program.ops.size());
    EXPECT_EQ(rest.result("z", ir::Role::State), ir::kNoValue);
    EXPECT_NE(rest.result("s", ir::Role::State), ir::kNoValue);
    // What reads z only is sequential no more.
    const auto before = graph::slices(program), after = graph::slices(rest);
    EXPECT_GT(std::count(before.begin(), before.end(), graph::Slice::OutputOnly),
              std::count(after.begin(), after.end(), graph::Slice::OutputOnly));
}

constexpr const char* kKernel = R"(func @kernel {
  %k: f32[C, K] = param() {name="k", role=input}
  %v: f32[C, V] = param() {name="v", role=input}
  %p: f32[C, C] = param() {name="p", role=spill}
  %b: f32[C, 1] = param() {name="b", role=spill}
  %s: f32[K, V] = param() {name="s", role=state}
  %w: f32[C, V] = mul(%v, %b)
  %x: f32[C, K] = exp(%k)
  %next: f32[K, V] = matmul_add(%x, %w, %s) {trans_a=true}
  %o: f32[C, V] = matmul(%p, %w)
  %r: f32[C, V] = matmul_add(%x, %s, %o)
  return state "s" = %next, input "o" = %r
}
)";

std::size_t count(const ir::Function& fn, ir::Opcode code) {
    return static_cast<std::size_t>(
        std::count_if(fn.ops.begin(), fn.ops.end(), [&](const ir::Op& op) { return op.code == code; }));
}

// %w, of the axis, is made twice; %x, which lacks it, is not: it could be made ahead for all tiles.
TEST(OwnValues, AreMadeByEachGroup) {
    const ir::Function fn = tile::with_own_values(ir::parse_function(kKernel), "V");
    EXPECT_EQ(count(fn, ir::Opcode::Mul), 2U);
    EXPECT_EQ(count(fn, ir::Opcode::Exp), 1U);
    const auto for_state = ir::needed_for(fn, {fn.result("s", ir::Role::State)}),
               for_output = ir::needed_for(fn, {fn.result("o", ir::Role::Input)});
    for (std::size_t i = 0; i < fn.ops.size(); ++i) {
        if (fn.ops[i].code != ir::Opcode::Mul) continue;
        EXPECT_NE(for_state[i], for_output[i]);
    }
}

// %x is multiplied and summed: each reads an exponential of its own. One that is only multiplied is left alone.
TEST(RemadeValues, HaveOneForEachReaderThatDoesNotMultiply) {
    const ir::Function fn = ir::parse_function(R"(func @kernel {
  %q: f32[C, K] = param() {name="q", role=input}
  %k: f32[C, K] = param() {name="k", role=input}
  %g: f32[K] = param() {name="g", role=spill}
  %x: f32[C, K] = exp(%k)
  %y: f32[C, K] = exp(%q)
  %scores: f32[C, C] = matmul(%y, %x) {trans_b=true}
  %weighted: f32[C, K] = mul(%x, %g)
  %sum: f32[K] = sum(%weighted) {dim=0}
  return spill "scores" = %scores, spill "sum" = %sum
}
)");
    EXPECT_EQ(count(tile::with_remade_values(fn, {{"C", 64}, {"K", 128}}), ir::Opcode::Exp), 3U);
    EXPECT_EQ(count(tile::with_remade_values(fn, {{"C", 64}, {"K", 100}}), ir::Opcode::Exp), 2U);  // no whole blocks
}

}  // namespace
}  // namespace forge::tests
