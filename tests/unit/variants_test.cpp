/// Every variant and novel program against its specification: in float64, the token-by-token `step`, the three phases
/// and the joined ChunkProgram must agree for every chunk size and length, with and without an initial state.
#include "variants/variants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "tests/novel/novel.h"

namespace forge {
namespace {

using interp::Bindings;
using interp::Outcome;
using variants::Entry;

constexpr double kTolerance = 1e-10;

void expect_equal(const Bindings& wanted, const Bindings& got, const std::string& what) {
    for (const auto& [name, value] : wanted)
        EXPECT_LE(interp::relative_difference(value, got.at(name)), kTolerance) << what << " '" << name << "'";
}

void expect_equal(const Outcome& wanted, const Outcome& got, const std::string& what) {
    expect_equal(wanted.outputs, got.outputs, what + ": output");
    expect_equal(wanted.states, got.states, what + ": state");
}

std::string name_of(const testing::TestParamInfo<Entry>& entry) { return entry.param.name; }

class Program : public testing::TestWithParam<Entry> {
  protected:
    ir::Definition def = GetParam().make().define();
};

TEST_P(Program, AgreesWithItsStep) {
    if (!def.step) GTEST_SKIP() << "defined per chunk";
    for (const std::int64_t tokens : {1, 7, 19}) {
        interp::Sizes sizes = interp::small_sizes(def, 1);
        interp::Sequence sequence = interp::random_sequence(def, sizes, tokens, 7);
        for (const bool initial : {true, false}) {
            if (!initial) sequence.initial_states.clear();
            const Outcome wanted = interp::run_steps(def, sequence, sizes);
            for (const std::int64_t chunk : {1, 4, 8}) {
                sizes["C"] = chunk;
                expect_equal(wanted, interp::run_phases(def, sequence, sizes),
                             "tokens " + std::to_string(tokens) + ", chunks of " + std::to_string(chunk));
            }
        }
    }
}

TEST_P(Program, JoinsIntoTheSameProgram) {
    const interp::Sizes sizes = interp::small_sizes(def, 4);
    const interp::Sequence sequence = interp::random_sequence(def, sizes, 10, 11);
    const ir::Function program = frontend::join(def);
    expect_equal(interp::run_phases(def, sequence, sizes), interp::run_program(program, def, sequence, sizes),
                 "joined");
}

TEST_P(Program, IsCausalAndIndifferentToPadding) {
    for (const Diagnostic& d : interp::check_semantics(def)) ADD_FAILURE() << to_string(d);
}

TEST_P(Program, LeavesTheStateOfAnEmptySequence) {
    const interp::Sizes sizes = interp::small_sizes(def, 4);
    const interp::Sequence sequence = interp::random_sequence(def, sizes, 0, 13);
    const Outcome got = interp::run_phases(def, sequence, sizes);
    expect_equal(sequence.initial_states, got.states, "empty");
    for (const auto& output : def.outputs) EXPECT_EQ(got.outputs.at(output.name).shape.at(0), 0);
}

INSTANTIATE_TEST_SUITE_P(Variants, Program, testing::ValuesIn(variants::all()), name_of);
INSTANTIATE_TEST_SUITE_P(Objectives, Program, testing::ValuesIn(variants::objectives()), name_of);
INSTANTIATE_TEST_SUITE_P(Novel, Program, testing::ValuesIn(novel::all()), name_of);

TEST(Registry, FindsEveryVariantByTheNameItsDefinitionHas) {
    for (const Entry& entry : variants::listed()) {
        EXPECT_EQ(variants::find(entry.name), &entry);
        EXPECT_EQ(entry.make().name(), entry.name);
    }
    EXPECT_EQ(variants::find("no_such_variant"), nullptr);
}

// What the naive chunk forms cannot bear in any precision, and every kernel must: gates of 0, -1000 and -inf.
TEST(Optimized, FollowsTheStepForEveryGate) {
    const double gates[] = {0, -1000, -std::numeric_limits<double>::infinity(), -0.3, -20};
    for (const Entry& entry : variants::listed()) {
        const ir::Definition def = entry.make().define();
        const interp::Sizes sizes = interp::small_sizes(def, 8);
        interp::Sequence sequence = interp::random_sequence(def, sizes, 19, 17);
        if (!def.input("g")) continue;
        auto& g = sequence.inputs.at("g").data;
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = gates[(i * 7 + i / 5) % std::size(gates)];
        const Outcome wanted = interp::run_steps(def, sequence, sizes);
        for (const double x : wanted.outputs.at("o").data) ASSERT_TRUE(std::isfinite(x)) << entry.name;
        expect_equal(wanted, interp::run_program(graph::optimize(frontend::join(def)), def, sequence, sizes),
                     entry.name);
    }
}

LinearAttention broken(bool leak, bool unmasked) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("broken");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}, unmasked ? 1.0 : 0.0);
    a.state("s", F32, {K, V});
    a.chunk({"k", "v"}, [=](Tensor k, Tensor v) { return matmul_out_fp32(transpose(unmasked ? exp(k) : k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "k", "v", "chunk_state"}, [=](Tensor q, Tensor k, Tensor v, Tensor before) {
        Tensor scores = matmul(q, transpose(k));
        return matmul_out_fp32(leak ? scores : tril(scores), v) + matmul(q.to(F32), before);
    });
    return a;
}

TEST(Semantics, NamesTheInputThatLeaksFromTheFuture) {
    const auto found = interp::check_semantics(broken(true, false).define());
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].what,
              "merge reads a later token: output 'o' at token 0 changes when input 'k' changes at token 1");
    EXPECT_EQ(found[1].what,
              "merge reads a later token: output 'o' at token 0 changes when input 'v' changes at token 1");
    EXPECT_TRUE(found[0].where.known());
}

TEST(Semantics, NamesTheStateThatPaddingChanges) {
    const auto found = interp::check_semantics(broken(false, true).define());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].what, "padding changes the final state 's'");
    EXPECT_NE(found[0].hint.find("token_mask"), std::string::npos);
}

}  // namespace
}  // namespace forge
