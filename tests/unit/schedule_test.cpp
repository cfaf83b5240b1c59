/// The scheduler on plain data: the paper's Algorithm 1 against its formulas, prices that follow what they count, and
/// choices that a person would make. Nothing is compiled or timed here.
#include <gtest/gtest.h>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "target/choose.h"
#include "target/cpu/algorithm1.h"
#include "tests/novel/novel.h"
#include "variants/variants.h"

namespace forge::target {
namespace {

using plan::Strategy;

struct Program {
    ir::Definition definition;
    ir::Function fn;
};

Program program_of(const std::string& variant, DType dtype = F32) {
    const ir::Definition def = frontend::with_dtype(variants::find(variant)->make().define(), dtype);
    return {def, graph::optimize(frontend::join(def))};
}

Problem problem_of(std::int64_t tokens, std::int64_t heads, std::int64_t sequences = 1) {
    return {{{"K", 128}, {"V", 128}, {"D", 1024}}, tokens, sequences, heads};
}

Choice choice_of(const std::string& variant, const Problem& problem, const Device& device, const Wishes& wishes = {},
                 const std::vector<Measurement>& measured = {}) {
    const Program p = program_of(variant, device.gpu ? BF16 : F32);
    return choose(p.definition, p.fn, {problem, device, wishes, target::Walk::Forwards, measured});
}

std::string explain(const Choice& choice, std::size_t most = 16) {
    return explain(choice, {}, {}, most);  // of a CPU, for which the choice says all
}

// ---- Algorithm 1 (Appendix B) --------------------------------------------------------------------------------------

Algorithm1Inputs paper_inputs() {
    Algorithm1Inputs in;
    in.batch = 2, in.tokens = 1000, in.heads = 4;
    in.key_size = 128, in.value_size = 192, in.chunk = 64, in.key_tile = 64, in.value_tile = 128;
    in.bandwidth = 1e9, in.most_tasks = 100, in.enough_tasks = 1000, in.element_bytes = 2;
    return in;
}

TEST(Algorithm1, CountsTasksAndBytesAsThePaperDoes) {
    const Algorithm1 a = algorithm1(paper_inputs());
    EXPECT_EQ(a.chunks, 16);          // ceil(1000 / 64)
    EXPECT_EQ(a.state_tiles, 2 * 2);  // ceil(128 / 64) ceil(192 / 128)
    EXPECT_EQ(a.decoupled_tasks, 2 * 4 * 16 * 4);
    EXPECT_EQ(a.fused_tasks, 2 * 4 * 4);
    EXPECT_DOUBLE_EQ(a.decoupled_bytes, (2.0 * 64 * (128 + 192) + 5.0 * 128 * 192) * 2);
    EXPECT_DOUBLE_EQ(a.fused_bytes, (2.0 * 64 * (128 + 192) + 4.0 * 128 * 192) * 2);
}

TEST(Algorithm1, DividesByTheTasksThatRunAtOnce) {
    Algorithm1Inputs in = paper_inputs();
    in.compute_s = 3e-3;
    const Algorithm1 a = algorithm1(in);
    EXPECT_DOUBLE_EQ(a.fused_s, a.fused_bytes / (1e9 * 32) + 3e-3 / 32);            // 32 tasks, below the cap
    EXPECT_DOUBLE_EQ(a.decoupled_s, a.decoupled_bytes / (1e9 * 100) + 3e-3 / 100);  // 512 tasks, capped
    EXPECT_FALSE(a.saturated);
    EXPECT_EQ(a.strategy, Strategy::Decoupled);
}

TEST(Algorithm1, TakesTheFastPathFromEnoughTasksOn) {
    Algorithm1Inputs in = paper_inputs();
    in.enough_tasks = 32;
    EXPECT_TRUE(algorithm1(in).saturated);
    EXPECT_EQ(algorithm1(in).strategy, Strategy::Fused);
    in.enough_tasks = 33;
    EXPECT_FALSE(algorithm1(in).saturated);
    EXPECT_EQ(algorithm1(in).strategy, Strategy::Decoupled);
}

TEST(Algorithm1, FusesWhenBothTakeAsLong) {
    Algorithm1Inputs in = paper_inputs();
    in.tokens =
        in.chunk;  // one chunk: as many tasks in either placement, so that only bytes count, and fused has fewer
    EXPECT_LT(algorithm1(in).fused_s, algorithm1(in).decoupled_s);
    EXPECT_EQ(algorithm1(in).strategy, Strategy::Fused);
    in.element_bytes = 0;  // nothing to move: equal
    EXPECT_DOUBLE_EQ(algorithm1(in).fused_s, algorithm1(in).decoupled_s);
    EXPECT_EQ(algorithm1(in).strategy, Strategy::Fused);
}

TEST(Algorithm1, DecidesWhenAsked) {
    Wishes wishes;
    wishes.rule = Rule::Paper;
    EXPECT_EQ(choice_of("scalar_gla", problem_of(8192, 32), h100_sxm(), wishes).schedule.strategy, Strategy::Decoupled);
    const Choice many = choice_of("scalar_gla", problem_of(8192, 32, 8), h100_sxm(), wishes);
    EXPECT_EQ(many.schedule.strategy, Strategy::Fused);
    EXPECT_NE(many.schedule.reason.find("Algorithm 1"), std::string::npos);
    EXPECT_THROW(rule_named("coin"), RuntimeError);
}

// ---- Prices --------------------------------------------------------------------------------------------------------

Cost price_of(const std::string& variant, const plan::Schedule& s, const Problem& problem, const Device& device) {
    const Program p = program_of(variant);
    return price(plan::make_plan(p.definition, p.fn, problem.sizes, s), problem, device);
}

TEST(Price, OnePassMovesEveryByteOnce) {
    const Problem problem = problem_of(4096, 4);
    plan::Schedule s;
    s.vector_width = 16;
    const double tokens = 4096.0 * 4 * (4 * 128 + 1) * 4,
                 states = 4.0 * 2 * 128 * 128 * 4;  // q, k, v, o and g; states in and out
    EXPECT_DOUBLE_EQ(price_of("scalar_gla", s, problem, cpu_device("avx512", 2)).bytes, tokens + states);
    const Program p = program_of("scalar_gla");
    EXPECT_DOUBLE_EQ(
        floor_of(plan::make_plan(p.definition, p.fn, problem.sizes, s), problem, cpu_device("avx512", 2)).bytes,
        tokens);
}

TEST(Price, SpillsAreWrittenAndReadBack) {
    const Problem problem = problem_of(4096, 4);
    plan::Schedule one, fused;
    fused.strategy = Strategy::Fused;
    const Device device = cpu_device("avx512", 2);
    const Cost a = price_of("linear_attention", one, problem, device),
               b = price_of("linear_attention", fused, problem, device);
    const double states = 4.0 * 64 * 128 * 128 * 4;  // 64 chunks of 4 heads
    EXPECT_DOUBLE_EQ(b.spill_bytes, states);
    EXPECT_GE(b.bytes - a.bytes, 2 * states);
}

TEST(Price, TasksFewerThanSlotsCostTheirIdleTime) {
    plan::Schedule s;
    s.vector_width = 16;
    const Problem alone = problem_of(8192, 1), two = problem_of(8192, 2);
    const Device device = cpu_device("avx512", 2);
    const Cost a = price_of("gated_delta_net", s, alone, device), b = price_of("gated_delta_net", s, two, device);
    EXPECT_NEAR(a.compute_s, b.compute_s, 1e-12);
    EXPECT_EQ(a.tasks, 1);
    EXPECT_EQ(a.hops, 128);
}

TEST(Price, TilesReadSharedValuesAgain) {
    plan::Schedule s;
    s.vector_width = 16;
    s.tile_axis = "V", s.tiles = 4, s.tile_size = 32;
    const Cost c = price_of("linear_attention", s, problem_of(4096, 1), cpu_device("avx512", 4));
    EXPECT_GT(c.again_bytes, 0);
    EXPECT_EQ(c.kernels.back().tasks, 4);
}

TEST(Price, SegmentsAddTasks) {
    plan::Schedule s;
    s.vector_width = 16;
    s.strategy = Strategy::Segmented, s.segments = 8;
    const Cost c = price_of("gla", s, problem_of(8192, 1), cpu_device("avx512", 8));
    ASSERT_EQ(c.kernels.size(), 3U);
    EXPECT_EQ(c.kernels[0].tasks, 7);  // nothing follows the last segment
    EXPECT_EQ(c.kernels[0].hops, 128 / 8);
    EXPECT_EQ(c.kernels[1].hops, 8);
    EXPECT_EQ(c.kernels[2].tasks, 8);
}

// ---- Choices -------------------------------------------------------------------------------------------------------

TEST(Choose, PrefersOnePassWhereHeadsFillTheThreads) {
    for (const char* variant : {"linear_attention", "scalar_gla", "gla", "delta_net", "gated_delta_net", "kda"}) {
        const Choice c = choice_of(variant, problem_of(8192, 4), cpu_device("avx512", 2));
        EXPECT_EQ(c.schedule.strategy, Strategy::OnePass) << variant;
        EXPECT_EQ(c.schedule.tiles, 1) << variant << "\n" << explain(c);
    }
}

TEST(Choose, SplitsOneHeadOverTheThreads) {
    for (const char* variant : {"linear_attention", "scalar_gla", "gla", "delta_net", "gated_delta_net", "kda"}) {
        const Choice c = choice_of(variant, problem_of(8192, 1), cpu_device("avx512", 2));
        EXPECT_GE(c.candidates[0].cost->tasks, 2) << variant << "\n" << explain(c);
    }
}

TEST(Choose, TakesASmallChunkForAShortSequence) {
    for (const char* variant : {"scalar_gla", "gated_delta_net"}) {
        EXPECT_EQ(choice_of(variant, problem_of(1, 4), cpu_device("avx512", 2)).schedule.chunk, 16) << variant;
        EXPECT_EQ(choice_of(variant, problem_of(16, 4), cpu_device("avx512", 2)).schedule.chunk, 16) << variant;
        EXPECT_LE(choice_of(variant, problem_of(33, 4), cpu_device("avx512", 2)).schedule.chunk, 32) << variant;
    }
}

TEST(Choose, FillsAGpuBySplitsAndSegments) {
    const Choice many = choice_of("scalar_gla", problem_of(32768, 32, 8), h100_sxm());
    EXPECT_EQ(many.schedule.strategy, Strategy::OnePass) << explain(many);
    const Choice few = choice_of("scalar_gla", problem_of(32768, 4), h200());
    EXPECT_GT(few.candidates[0].cost->tasks, 4) << explain(few);
    EXPECT_LT(h100_sxm().memory_bandwidth, h200().memory_bandwidth);
}

TEST(Choose, NeverSegmentsWhatDoesNotCompose) {
    for (const auto& entry : novel::all()) {
        const ir::Definition def = frontend::with_dtype(entry.make().define(), F32);
        const ir::Function fn = graph::optimize(frontend::join(def));
        Problem problem = problem_of(8192, 1);
        for (const auto& state : def.states)
            for (const Dim& d : state.type.shape)
                if (!d.is_constant()) problem.sizes.emplace(d.symbol, 64);
        for (const auto& in : def.inputs)
            for (const Dim& d : in.type.shape)
                if (!d.is_constant()) problem.sizes.emplace(d.symbol, 64);
        const Choice c = choose(def, fn, {problem, cpu_device("avx512", 2), {}});
        EXPECT_FALSE(c.candidates.empty()) << entry.name;
        EXPECT_GT(c.candidates[0].cost->seconds, 0) << entry.name;
    }
}

TEST(Choose, DoesWhatTheCallerFixed) {
    Wishes wishes;
    wishes.strategy = Strategy::Decoupled, wishes.chunk = 128, wishes.tiles = 2;
    const Choice c = choice_of("gla", problem_of(8192, 4), cpu_device("avx512", 2), wishes);
    EXPECT_EQ(c.candidates.size(), 1U);
    EXPECT_EQ(c.schedule.strategy, Strategy::Decoupled);
    EXPECT_EQ(c.schedule.chunk, 128);
    EXPECT_EQ(c.schedule.tiles, 2);
    EXPECT_NE(c.schedule.reason.find("decoupled, chunk 128, 2 tiles"), std::string::npos) << c.schedule.reason;
    wishes.tiles = 3;
    EXPECT_THROW(choice_of("gla", problem_of(8192, 4), cpu_device("avx512", 2), wishes), RuntimeError);
}

TEST(Choose, BelievesAMeasurementMoreThanThePrice) {
    const Problem problem = problem_of(8192, 4);
    const Device device = cpu_device("avx512", 2);
    const Choice free = choice_of("gla", problem, device);
    const Candidate& last = free.candidates.back();
    const Choice tuned = choice_of("gla", problem, device, {}, {{last.schedule, 1.0}});
    EXPECT_TRUE(same_choice(tuned.schedule, last.schedule));
    EXPECT_NE(tuned.schedule.reason.find("fastest measured"), std::string::npos) << tuned.schedule.reason;
    const Choice both = choice_of("gla", problem, device, {}, {{last.schedule, 1.0}, {free.schedule, 0.5}});
    EXPECT_TRUE(same_choice(both.schedule, free.schedule));
    Wishes wishes;  // a measurement of something else does not count against a wish
    wishes.chunk = last.schedule.chunk == 16 ? 32 : 16;
    EXPECT_EQ(choice_of("gla", problem, device, wishes, {{last.schedule, 1.0}}).schedule.chunk, wishes.chunk);
}

TEST(Choose, IsAFunctionAndPrintsItsTable) {
    const Choice a = choice_of("kda", problem_of(8192, 1), cpu_device("avx512", 2)),
                 b = choice_of("kda", problem_of(8192, 1), cpu_device("avx512", 2));
    EXPECT_EQ(explain(a), explain(b));
    for (const char* word : {"one-pass", "fused", "estimate", "Floor:", "* "})
        EXPECT_NE(explain(a, 100).find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace forge::target
