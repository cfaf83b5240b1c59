/// Which states are proven to keep exponents small, and nothing else, and what the gradients past them are.
#include "graph/stabilisers.h"

#include <gtest/gtest.h>

#include <functional>

#include "forge/language.h"
#include "graph/derive.h"
#include "program/entry_point.h"
#include "program/module.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

using Names = std::set<std::string>;

/// An mLSTM whose output is made of the state's reading, the weight of it, and the maximum, and what is added to the
/// state of the key as it is and as it is scaled.
Names stabilisers_of(
    const std::function<Tensor(const Tensor& read, const Tensor& weight, const Tensor& m)>& output,
    const std::function<Tensor(const Tensor& k, const Tensor& key)>& update = [](const Tensor&, const Tensor& key) {
        return key;
    }) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("mlstm");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("i", F32, {T, H}).input("f", F32, {T, H});
    a.state("s", F32, {K, V}).state("n", F32, {K}).state("m", F32, {});
    a.step(
        {"q", "k", "v", "i", "f", "prev_s", "prev_n", "prev_m"},
        [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& i, const Tensor& f, const Tensor& s,
            const Tensor& n, const Tensor& m) -> Results {
            const Tensor kept = logsigmoid(f) + m, greatest = maximum(kept, i), key = k * exp(i - greatest);
            const Tensor state = s * exp(kept - greatest) + outer(update(k, key), v),
                         sum = n * exp(kept - greatest) + key;
            return {
                {"s", state}, {"n", sum}, {"m", greatest}, {"o", output(matmul(q, state), matmul(q, sum), greatest)}};
        });
    return graph::stabilisers(graph::with_phases(a.define()));
}

TEST(Stabilisers, ArePartOfWhatTheyNormalise) {
    EXPECT_EQ(graph::stabilisers(graph::with_phases(program_named("stabilised_mlstm").make().define())), Names{"m"});
    EXPECT_EQ(stabilisers_of([](auto& read, auto& weight, auto& m) { return read / maximum(abs(weight), exp(-m)); }),
              Names{"m"});
    EXPECT_EQ(stabilisers_of([](auto& read, auto&, auto& m) { return read * exp(m); }), Names{"m"});
    EXPECT_EQ(stabilisers_of([](auto& read, auto& weight, auto& m) { return read / (abs(weight) + exp(-m)); }),
              Names{"m"});
}

TEST(Stabilisers, AreNoneThatOutputsShow) {
    EXPECT_EQ(stabilisers_of([](auto& read, auto&, auto&) { return read; }), Names());
    EXPECT_EQ(stabilisers_of([](auto& read, auto& weight, auto&) { return read / maximum(abs(weight), 1.0); }),
              Names());
    EXPECT_EQ(stabilisers_of([](auto& read, auto& weight, auto&) { return read / (abs(weight) + 1e-6); }), Names());
    EXPECT_EQ(stabilisers_of([](auto& read, auto& weight, auto& m) { return read / maximum(weight, exp(m)); }),
              Names());
    EXPECT_EQ(
        stabilisers_of([](auto& read, auto& weight, auto& m) { return read / maximum(abs(weight), exp(-m)) + m; }),
        Names());
    EXPECT_EQ(graph::stabilisers(graph::with_phases(program_named("running_maximum").make().define())), Names());
}

TEST(Stabilisers, AreNoneThatStatesShow) {
    const auto output = [](const Tensor& read, const Tensor& weight, const Tensor& m) {
        return read / maximum(abs(weight), exp(-m));
    };
    EXPECT_EQ(stabilisers_of(output, [](const Tensor& k, const Tensor&) { return k; }), Names());
    EXPECT_EQ(stabilisers_of(output, [](const Tensor& k, const Tensor& key) { return k + key; }), Names());
    EXPECT_EQ(stabilisers_of(output, [](const Tensor&, const Tensor& key) { return key * 0.5; }), Names{"m"});
}

TEST(Stabilisers, HaveNoGradientsToInputs) {
    const program::Module module(program_named("stabilised_mlstm").make().define(), BF16);
    const program::EntryPoint& made = module.entry("backward to inputs");
    EXPECT_FALSE(made.tensors.state("grad_m"));
    ASSERT_TRUE(made.tensors.state("grad_s") && made.tensors.state("s"));
    EXPECT_TRUE(made.tensors.state("grad_s")->inner);
    EXPECT_FALSE(made.tensors.state("s")->inner);
    for (const ir::Op& op : made.optimised.ops) EXPECT_NE(op.attrs.name, "grad_m");
    EXPECT_TRUE(module.entry("backward").tensors.state("grad_m"));
}

// Whatever the phases of a definition's own are, its step shows that nothing passes back, and phases follow from it.
TEST(Stabilisers, HaveNoGradientsWhereTheDefinitionHasPhasesOfItsOwn) {
    ir::Definition def = graph::with_phases(program_named("stabilised_mlstm").make().define());
    def.derived = false;
    const program::Module module(def, BF16);
    const program::EntryPoint& made = module.entry("backward to inputs");
    EXPECT_FALSE(made.tensors.state("grad_m"));
    for (const ir::Op& op : made.optimised.ops) EXPECT_NE(op.attrs.name, "grad_m");
}

}  // namespace
}  // namespace forge::tests
