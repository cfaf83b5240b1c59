/// What plans for warp groups do to a program after the pipeline changes none of its results, for every variant and
/// novel program, on a sequence with a ragged last chunk.
#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/join.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/slice.h"
#include "interp/semantics.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kChunk = 8, kTokens = 3 * kChunk - 3;
constexpr double kTolerance = 1e-10;  ///< of float64, relative

bool is_finite(const interp::Outcome& outcome) {
    return std::all_of(outcome.outputs.begin(), outcome.outputs.end(),
                       [](const auto& named) { return interp::relative_difference(named.second, named.second) == 0; });
}

class ProgramPasses : public testing::TestWithParam<Entry> {
  protected:
    void SetUp() override {
        for (const Range range : {Range{-0.9, -0.1}, Range{0.1, 0.9}}) {  // log gates, then gates
            sequence = interp::random_sequence(def, sizes, kTokens, 5, range);
            wanted = interp::run_program(program, def, sequence, sizes);
            if (is_finite(wanted)) return;
        }
        FAIL() << "no range of gates gives finite outputs";
    }

    void expect_same(const ir::Function& changed, const char* pass) {
        const interp::Outcome got = interp::run_program(changed, def, sequence, sizes);
        for (const auto& [name, value] : wanted.outputs)
            EXPECT_LE(interp::relative_difference(value, got.outputs.at(name)), kTolerance) << pass << ", " << name;
        for (const auto& [name, value] : wanted.states)
            EXPECT_LE(interp::relative_difference(value, got.states.at(name)), kTolerance) << pass << ", " << name;
    }

    ir::Definition def = GetParam().make().define();
    interp::Sizes sizes = interp::small_sizes(def, kChunk);
    ir::Function program = graph::optimize(frontend::join(def));
    interp::Sequence sequence;
    interp::Outcome wanted;
};

TEST_P(ProgramPasses, KeepResults) {
    const auto axes = graph::parallel_axes(program);
    const std::string axis = axes.empty() ? "" : axes[0];
    expect_same(graph::vector_products(program), "vector_products");
    expect_same(graph::simplify(graph::vector_products(program)), "simplify");
    expect_same(graph::share_masked_products(program), "share_masked_products");
    expect_same(graph::join_products(program), "join_products");
    expect_same(graph::late_factors(program), "late_factors");
    expect_same(graph::deepest_last(program), "deepest_last");
    for (const std::string& cut : {axis, std::string()}) {
        expect_same(graph::hoist_scales(program, cut), "hoist_scales");
        expect_same(graph::merge_scales(program, cut), "merge_scales");
        expect_same(graph::fold_factors(program, cut), "fold_factors");
        const ir::Function hoisted = graph::hoist_scales(graph::late_factors(program), cut);
        expect_same(graph::deepest_last(hoisted), "all but merge_scales");
        const ir::Function merged = graph::merge_scales(hoisted, cut);
        expect_same(graph::deepest_last(merged), "all but fold_factors");
        expect_same(graph::deepest_last(graph::fold_factors(merged, cut)), "all");
    }
}

INSTANTIATE_TEST_SUITE_P(All, ProgramPasses, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
