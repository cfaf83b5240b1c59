/// Kernels of single chunks as two: each makes some of the results, and all that these need.
#include "plan/halves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "program/module.h"
#include "tests/support/entries.h"

namespace forge::plan {
namespace {

std::vector<KernelGraph> kernels_of_gradients() {
    const program::Module module(tests::program_named("gated_delta_net").make().define(), BF16);
    return place(module.entry("backward").optimised, Strategy::Fused, "V", {Again::Inputs});
}

const KernelGraph& named(const std::vector<KernelGraph>& kernels, const std::string& name) {
    const auto it = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == name; });
    EXPECT_NE(it, kernels.end()) << name;
    return *it;
}

std::set<std::string> results_of(const KernelGraph& kernel) {
    std::set<std::string> names;
    for (const ir::Result& r : kernel.fn.results) names.insert(r.name);
    return names;
}

TEST(Halves, HaveAllResultsOnce) {
    const std::string name = "gated_delta_net_gradient_outputs";
    const std::vector<KernelGraph> whole = kernels_of_gradients(), halved = with_halves(whole, {name});
    ASSERT_EQ(halved.size(), whole.size() + 1);
    const KernelGraph &outputs = named(whole, name), &first = named(halved, name + "_first"),
                      &second = named(halved, name + "_second");
    std::set<std::string> both = results_of(first);
    for (const std::string& result : results_of(second)) EXPECT_TRUE(both.insert(result).second) << result;
    EXPECT_EQ(both, results_of(outputs));
    EXPECT_FALSE(first.fn.results.empty() || second.fn.results.empty());
    EXPECT_LT(first.fn.size(), outputs.fn.size());
    EXPECT_LT(second.fn.size(), outputs.fn.size());
    EXPECT_EQ(first.fn.name, first.name);
    EXPECT_EQ(first.loop, Loop::Chunks);
}

TEST(Halves, AreHalvedToo) {
    const std::string name = "gated_delta_net_gradient_outputs";
    const std::vector<KernelGraph> kernels = with_halves(kernels_of_gradients(), {name, name + "_first"});
    EXPECT_EQ(results_of(named(kernels, name + "_first_first"))
                  .count(named(kernels, name + "_first_second").fn.results[0].name),
              0U);
}

// What goes through chunks in order carries states, and one result cannot be divided.
TEST(Halves, AreOfSingleChunksAndSeveralResults) {
    const std::vector<KernelGraph> whole = kernels_of_gradients();
    std::set<std::string> names;
    for (const KernelGraph& kernel : whole)
        if (kernel.loop != Loop::Chunks) names.insert(kernel.name);
    ASSERT_FALSE(names.empty());
    EXPECT_EQ(with_halves(whole, names).size(), whole.size());
    KernelGraph single = named(whole, "gated_delta_net_gradient_outputs");
    single.fn.results.resize(1);
    EXPECT_EQ(with_halves({single}, {single.name}).size(), 1U);
}

}  // namespace
}  // namespace forge::plan
