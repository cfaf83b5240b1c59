/// Which states scans of their own can carry, and what their kernels make.
#include "graph/state_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "forge/language.h"
#include "graph/slice.h"
#include "plan/place.h"
#include "program/module.h"

namespace forge::tests {
namespace {

using Names = std::set<std::string>;
using Groups = std::vector<Names>;
using ir::Role;
using plan::KernelGraph;

enum class Second : std::uint8_t { Alone, ReadsFirst, ReadsEachOther };

/// Two delta rules and a count, and what the second reads of the first.
ir::Definition two_rules(Second second) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("two_rules");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).input("g", F32, {T, H});
    a.state("s", F32, {K, V}).state("r", F32, {K, V}).state("n", F32, {});
    a.step({"q", "k", "v", "g", "prev_s", "prev_r", "prev_n"},
           [second](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& s,
                    const Tensor& r, const Tensor& n) -> Results {
               Tensor read = second == Second::Alone ? v : matmul(q, s);
               Tensor next_r = r * exp(g) + outer(k, read - matmul(k, r));
               Tensor value = second == Second::ReadsEachOther ? v + matmul(q, r) : v;
               Tensor next_s = s * exp(g) + outer(k, value);
               return {{"s", next_s}, {"r", next_r}, {"n", n + exp(g)}, {"o", matmul(q, next_s) + matmul(q, next_r)}};
           });
    return a.define();
}

Groups groups(Second second) {
    const program::Module module(two_rules(second), BF16);
    return graph::state_groups(module.entry("forward").optimised, Role::State);
}

TEST(StateGroups, ComeAfterThoseThatTheyNeed) {
    EXPECT_EQ(groups(Second::Alone), (Groups{{"n", "r"}, {"s"}}));
    EXPECT_EQ(groups(Second::ReadsFirst), (Groups{{"n", "s"}, {"r"}}));
    EXPECT_EQ(groups(Second::ReadsEachOther), (Groups{{"n", "r", "s"}}));
}

TEST(StateGroups, OfSavedStatesGoForwardsAndOfTheirGradientsBack) {
    const program::Module module(two_rules(Second::ReadsFirst), BF16);
    const ir::Function& program = module.entry("backward").optimised;
    EXPECT_EQ(graph::state_groups(program, Role::Before), (Groups{{"n", "s"}, {"r"}}));
    EXPECT_EQ(graph::state_groups(program, Role::State), (Groups{{"grad_n", "grad_r"}, {"grad_s"}}));
    EXPECT_TRUE(graph::has_state_groups(program));
}

std::vector<KernelGraph> kernels_apart(const program::Module& module, const char* entry, plan::Strategy strategy) {
    plan::PlaceRules rules{plan::Again::Inputs};
    rules.scans_apart = true;
    return plan::place(module.entry(entry).optimised, strategy, "V", rules);
}

Names made(const KernelGraph& kernel, Role role) {
    Names names;
    for (const ir::Result& r : kernel.fn.results)
        if (r.role == role) names.insert(r.name);
    return names;
}
Names read(const KernelGraph& kernel, Role role) {
    Names names;
    for (const ir::Op& op : kernel.fn.ops)
        if (op.code == ir::Opcode::Param && op.attrs.role == role) names.insert(op.attrs.name);
    return names;
}

const KernelGraph& named(const std::vector<KernelGraph>& kernels, const std::string& stage) {
    const auto it = std::find_if(kernels.begin(), kernels.end(),
                                 [&](const KernelGraph& k) { return k.name.ends_with("_" + stage); });
    EXPECT_NE(it, kernels.end()) << stage;
    return *it;
}

// Scans that need nothing of each other can run side by side.
TEST(StateGroups, HaveScansThatReadNothingOfEachOther) {
    const program::Module module(two_rules(Second::Alone), BF16);
    for (const plan::Strategy strategy : {plan::Strategy::Fused, plan::Strategy::Decoupled}) {
        const std::vector<KernelGraph> kernels = kernels_apart(module, "forward", strategy);
        const KernelGraph &first = named(kernels, "states"), &second = named(kernels, "states_2");
        EXPECT_EQ(made(first, Role::State), (Names{"n", "r"}));
        EXPECT_EQ(made(second, Role::State), Names{"s"});
        for (const std::string& spill : made(first, Role::Spill))
            EXPECT_FALSE(read(second, Role::Spill).contains(spill)) << spill;
    }
}

// The first scan leaves what the second reads of its states.
TEST(StateGroups, LeaveWhatLaterScansRead) {
    const program::Module module(two_rules(Second::ReadsFirst), BF16);
    const std::vector<KernelGraph> kernels = kernels_apart(module, "forward", plan::Strategy::Fused);
    const KernelGraph &first = named(kernels, "states"), &second = named(kernels, "states_2");
    EXPECT_EQ(read(second, Role::State), Names{"r"});
    const Names left = made(first, Role::Spill), taken = read(second, Role::Spill);
    EXPECT_TRUE(std::any_of(taken.begin(), taken.end(), [&](const auto& name) { return left.contains(name); }));
}

TEST(StateGroups, OfABackwardPassHaveScansBothWays) {
    const program::Module module(two_rules(Second::Alone), BF16);
    const std::vector<KernelGraph> kernels = kernels_apart(module, "backward", plan::Strategy::Fused);
    EXPECT_EQ(made(named(kernels, "before_2"), Role::State), Names{"s"});
    EXPECT_FALSE(named(kernels, "before_2").reverse);
    EXPECT_EQ(made(named(kernels, "states_2"), Role::State), Names{"grad_s"});
    EXPECT_TRUE(named(kernels, "states_2").reverse);
}

// One kernel makes everything by one-pass.
TEST(StateGroups, HaveOneScanWhereItMakesTheOutputs) {
    const program::Module module(two_rules(Second::Alone), BF16);
    const std::vector<KernelGraph> kernels = kernels_apart(module, "forward", plan::Strategy::OnePass);
    EXPECT_EQ(made(kernels.back(), Role::State), (Names{"n", "r", "s"}));
}

/// Of length 1: values, or what is read.
ir::Definition normed(bool values) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("normed");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).state("s", F32, {K, V});
    a.step({"q", "k", "v", "prev_s"},
           [values](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               Tensor next = s + outer(k, values ? l2norm(v) : v), read = matmul(q, next);
               return {{"s", next}, {"o", values ? read : l2norm(read)}};
           });
    return a.define();
}

// Lengths of values are made ahead of tiles of them; of what is read of a state they cannot be.
TEST(SumsAhead, AreOfWhatNeedsNoState) {
    const program::Module values(normed(true), BF16), read(normed(false), BF16);
    const ir::Function& program = values.entry("forward").optimised;
    EXPECT_EQ(graph::parallel_axes(program), std::vector<std::string>{});
    EXPECT_EQ(graph::parallel_axes(program, graph::Whole::All, graph::Sums::Ahead), std::vector<std::string>{"V"});
    const std::vector<KernelGraph> kernels = plan::place(program, plan::Strategy::OnePass, "V", {plan::Again::Inputs});
    ASSERT_EQ(kernels.size(), 2U);
    EXPECT_FALSE(graph::is_parallel(kernels[0].fn, "V"));
    EXPECT_TRUE(graph::is_parallel(kernels[1].fn, "V"));
    EXPECT_EQ(graph::parallel_axes(read.entry("forward").optimised, graph::Whole::All, graph::Sums::Ahead),
              std::vector<std::string>{});
}

}  // namespace
}  // namespace forge::tests
