/// Programs of thousands of operations, of forms in which what one operation reads can be counted over and over:
/// whatever visits each path through them, rather than each operation, would not come to an end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emit/cpu/emit_cpu.h"
#include "forge/language.h"
#include "frontend/join.h"
#include "graph/norm_bound.h"
#include "graph/pipeline.h"
#include "graph/transition.h"
#include "interp/semantics.h"
#include "plan/plan.h"
#include "target/choose.h"

namespace forge::tests {
namespace {

using Repeat = Tensor (*)(const Tensor&);

/// A decay of `count` repetitions of something that keeps a number within (0, 1).
ir::Definition definition(Repeat repeat, int count) {
    const auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("long");
    a.input("k", F32, {T, H, K}).input("v", F32, {T, H, V}).input("g", F32, {T, H, K});
    a.state("s", F32, {K, V});
    const auto gate = [=](Tensor g) {
        g = sigmoid(g);
        for (int i = 0; i < count; ++i) g = repeat(g);
        return g * 0.0;
    };
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul(transpose(k), v); });
    a.decay({"prev_s", "chunk_state", "g"},
            [=](Tensor s, Tensor chunk, Tensor g) { return s * exp(unsqueeze(sum(gate(g), 0), 1)) + chunk; });
    a.merge({"k", "v", "chunk_state"},
            [](Tensor k, Tensor v, Tensor s) { return matmul(k, s) + matmul(tril(matmul(k, transpose(k))), v); });
    return a.define();
}

class LongPrograms : public testing::TestWithParam<Repeat> {};

TEST_P(LongPrograms, AreCompiled) {
    const ir::Definition def = definition(GetParam(), 700);
    EXPECT_TRUE(interp::check_semantics(def).empty());
    const ir::Function program = graph::optimize(frontend::join(def));
    EXPECT_GT(program.size(), 1400);
    static_cast<void>(graph::transitions(program));
    static_cast<void>(graph::norm_bounds(program, def));
    const target::Problem problem{.sizes = {{"K", 16}, {"V", 16}}, .tokens = 256, .sequences = 1, .heads = 1};
    const target::Choice choice = target::choose(def, program, {problem, target::cpu_device("avx2", 2), {}});
    const plan::Plan plan = plan::make_plan(def, program, {{"K", 16}, {"V", 16}}, choice.schedule);
    EXPECT_FALSE(emit::emit_cpu(plan).empty());
}

const Repeat kRepeats[] = {
    [](const Tensor& x) { return exp(x * x) * 0.3; },                   // what is read twice in one loop
    [](const Tensor& x) { return sigmoid(x * x - tanh(x)); },           // … by two that one reads
    [](const Tensor& x) { return where(lt(x, 0.5), x * 0.9, x * x); },  // … three times
};

INSTANTIATE_TEST_SUITE_P(All, LongPrograms, testing::ValuesIn(kRepeats),
                         [](const auto& test) { return fmt::format("form_{}", test.index); });

}  // namespace
}  // namespace forge::tests
