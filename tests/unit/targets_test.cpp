/// The chooser on GPUs, by their facts: what is taken unasked, what a measurement changes, and that whatever is not
/// taken is a candidate or has a reason. Nothing is compiled or timed here.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "compile/question.h"
#include "forge/error.h"
#include "program/module.h"
#include "target/choose.h"
#include "tests/novel/novel.h"
#include "tests/support/entries.h"
#include "tests/support/turns.h"
#include "tile/text.h"
#include "variants/variants.h"

namespace forge::target {
namespace {

using plan::Engine;
using plan::Strategy;

Question about(const std::string& gpu, std::int64_t tokens = 8192, std::int64_t heads = 4) {
    return {{{{"K", 128}, {"V", 128}, {"D", 1024}}, tokens, 1, heads}, facts_of(gpu), {}};
}

struct Chosen {
    explicit Chosen(const ir::Definition& def) : module(def, BF16) {}
    [[nodiscard]] Choice on(const Question& question, Range range = Range::Best) const {
        return choose(module.own(), module.entry("forward").optimised, question, range);
    }
    program::Module module;
};

Chosen of(const std::string& variant) { return Chosen(variants::find(variant)->make().define()); }

TEST(Targets, TakeTheSameWhetherAllCandidatesAreLookedAtOrNot) {
    for (const auto& entry : variants::all())
        for (const char* gpu :
             tests::in_turn(entry, std::vector<const char*>{"h200", "a100", "rtx4090", "b200", "rtx5090"}, 1)) {
            const Chosen program(entry.make().define());
            const Choice best = program.on(about(gpu)), all = program.on(about(gpu), Range::All);
            EXPECT_TRUE(same_choice(best.schedule, all.schedule)) << entry.name << " on " << gpu;
            EXPECT_EQ(&best.target(), &all.target());
            EXPECT_GE(all.candidates.size(), best.candidates.size());
            EXPECT_EQ(best.schedule.refused.size(), all.schedule.refused.size());
        }
}

TEST(Targets, HaveAScheduleOrAReason) {
    const Choice choice = of("gated_delta_net").on(about("h200"), Range::All);
    EXPECT_STREQ(choice.target().name, "warp-groups");
    bool refused = false;
    for (const Candidate& c : choice.candidates) {
        if (c.refusal) EXPECT_FALSE(c.refusal->why.empty());
        EXPECT_TRUE(!c.possible() || !refused) << "what cannot be had comes last";
        refused = refused || !c.possible();
    }
    const auto of_target = [&](const Target& target, bool possible) {
        return std::count_if(choice.candidates.begin(), choice.candidates.end(),
                             [&](const Candidate& c) { return c.target == &target && c.possible() == possible; });
    };
    EXPECT_EQ(of_target(channels_target(), false), 1);  // for one reason, whatever is varied
    EXPECT_EQ(of_target(channels_target(), true), 0);
    EXPECT_GT(of_target(warp_groups_target(), true), 4);
    EXPECT_GT(of_target(portable_target(), true), 4);
    EXPECT_EQ(of_target(cpu_target(), true) + of_target(cpu_target(), false), 0);
}

// Both have the outputs' gradients in one kernel; of RWKV-7 that has four times the text
// that a multiprocessor keeps.
TEST(Targets, KernelsOfTooMuchTextAreHalved) {
    for (const auto& [variant, halves] : {std::pair("rwkv7", true), std::pair("gated_delta_net", false)}) {
        const Chosen program(tests::program_named(variant).make().define());
        const Question question = about("h200", 8192, 32);
        const auto& gradients = program.module.entry("backward");
        plan::Schedule s = choose(gradients.tensors, gradients.optimised, question, Range::Best).schedule;
        EXPECT_EQ(!s.halved.empty(), halves) << plan::to_string(s);
        const auto longest = [&] {
            std::int64_t most = 0;
            for (const plan::Kernel& kernel :
                 plan::make_plan(gradients.tensors, gradients.optimised, question.problem.sizes, s).kernels)
                if (kernel.graph.loop == plan::Loop::Chunks) most = std::max(most, tile::text_bytes(kernel.tiles));
            return most;
        };
        const std::int64_t so = longest();
        s.halved.clear();
        if (halves) EXPECT_LT(so, longest() * 4 / 5);
        else EXPECT_LT(so, tile::kKeptText * 11 / 10);
    }
}

TEST(Targets, PortableSchedulesGoByTimeAndMemory) {
    const Chosen program = of("gated_delta_net");
    const auto portable = [&](std::int64_t tokens, std::int64_t heads) {
        Question question = about("a100", tokens, heads);
        question.wishes.engine = Engine::Tiles;
        return program.on(question).schedule;
    };
    const plan::Schedule many = portable(4096, 32), few = portable(4096, 4), far_too_long = portable(1 << 20, 32);
    EXPECT_EQ(many.strategy, Strategy::Fused);
    EXPECT_FALSE(many.tile_chunks) << "scores and inverses are made once per chunk";
    EXPECT_GT(many.tiles, 1);
    EXPECT_EQ(few.strategy, Strategy::Segmented);
    EXPECT_EQ(far_too_long.strategy, Strategy::OnePass) << "which keeps no states";
    EXPECT_EQ(program.on(about("a100", 1 << 20, 4)).schedule.strategy, Strategy::Segmented);
    EXPECT_EQ(program.on(about("a100", 1 << 20, 32)).schedule.strategy, Strategy::OnePass) << "nor by warps";
}

// Keys that are turned are turned once for all tiles of values, and halves of states against each other in registers.
TEST(Targets, KernelsOfChunksHaveAllTilesWhereThatTakesLess) {
    for (const auto& [variant, whole] : {std::pair("mamba3", std::set<std::string>{"mamba3_chunks"}),
                                         std::pair("gated_delta_net", std::set<std::string>())}) {
        const Chosen program = of(variant);
        const Question question = about("h200", 8192, 32);
        const plan::Schedule s = program.on(question).schedule;
        EXPECT_EQ(s.whole, whole) << plan::to_string(s);
        const plan::Plan plan =
            plan::make_plan(program.module.own(), program.module.entry("forward").optimised, question.problem.sizes, s);
        for (const plan::Kernel& kernel : plan.kernels) {
            if (whole.contains(kernel.graph.name)) EXPECT_EQ(kernel.cut.count, 1);
            if (kernel.graph.loop == plan::Loop::Scan) EXPECT_EQ(kernel.cut.count, 2);
        }
        const auto is_state = [](const ir::Result& r) { return r.role == ir::Role::State; };
        const auto& results = plan.scan().tiles.fn.results;
        EXPECT_EQ(std::count_if(results.begin(), results.end(), is_state), whole.empty() ? 1 : 4);
    }
}

TEST(Targets, ANotAffineDecayIsARefusalOfSegmentsAndNoError) {
    for (const auto& entry : novel::all()) {
        if (!tests::has_turn(entry, 2)) continue;
        const Chosen program(entry.make().define());
        Question question = about("h200");
        for (const auto& in : program.module.own().inputs)
            for (const Dim& d : in.type.shape)
                if (!d.is_constant()) question.problem.sizes.emplace(d.symbol, 64);
        for (const auto& state : program.module.own().states)
            for (const Dim& d : state.type.shape)
                if (!d.is_constant()) question.problem.sizes.emplace(d.symbol, 64);
        question.wishes.chunk = program.module.entry("forward").chunk;
        const Choice choice = program.on(question, Range::All);
        EXPECT_TRUE(choice.candidates[0].possible()) << entry.name;
        EXPECT_FALSE(explain(choice, program.module.own(), program.module.entry("forward").optimised).empty());
    }
}

TEST(Targets, BelieveAMeasurementMoreThanTheOrder) {
    const Chosen program = of("scalar_gla");
    Question question = about("h200");
    const Choice all = program.on(question, Range::All);
    const auto portable = std::find_if(all.candidates.begin(), all.candidates.end(),
                                       [](const Candidate& c) { return c.schedule.engine == Engine::Tiles; });
    ASSERT_NE(portable, all.candidates.end());
    question.measurements = {{all.schedule, 2e-4}, {portable->schedule, 1e-4}};
    for (const Range range : {Range::Best, Range::All}) {
        const Choice tuned = program.on(question, range);
        EXPECT_TRUE(same_choice(tuned.schedule, portable->schedule));
        EXPECT_STREQ(tuned.target().name, "portable");
        EXPECT_EQ(tuned.schedule.reason, "the fastest that forge tune measured");
        EXPECT_TRUE(same_choice(tuned.candidates[1].schedule, all.schedule)) << "the second fastest";
        for (std::size_t i = 2; i < tuned.candidates.size(); ++i) EXPECT_EQ(tuned.candidates[i].measured_s, 0);
    }
}

TEST(Targets, AMeasurementOfWhatIsNoMoreIsARefusal) {
    const Chosen program = of("scalar_gla");
    Question question = about("h200");
    const Choice unasked = program.on(question);
    plan::Schedule gone = unasked.schedule;
    gone.strategy = Strategy::OnePass, gone.tiles = 3;  // no divisor of 128
    question.measurements = {{gone, 1e-9}};
    const Choice choice = program.on(question, Range::All);
    EXPECT_TRUE(same_choice(choice.schedule, unasked.schedule));
    const auto stale = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                                    [](const Candidate& c) { return c.refusal && c.refusal->reason == "Measured"; });
    ASSERT_NE(stale, choice.candidates.end());
    EXPECT_NE(stale->refusal->why.find("divisor"), std::string::npos) << stale->refusal->why;
}

TEST(Targets, WhatIsAskedForByNameIsHadOrAnError) {
    const Chosen program = of("hgrn");
    Question question = about("h200");
    EXPECT_STREQ(program.on(question).target().name, "channels");
    question.wishes.engine = Engine::Tiles;
    EXPECT_STREQ(program.on(question).target().name, "portable");
    EXPECT_TRUE(program.on(question).schedule.refused.empty());
    question.wishes.engine = Engine::WarpGroups;
    try {
        static_cast<void>(program.on(question));
        ADD_FAILURE();
    } catch (const RuntimeError& error) {
        EXPECT_NE(
            std::string(error.what()).find("expected a program for warp groups; warp-groups: there are no products"),
            std::string::npos)
            << error.what();
    }
    question.wishes.threads = 100;
    EXPECT_THROW(static_cast<void>(program.on(question)), RuntimeError);
}

TEST(Targets, ACandidateIsAskedForAgainByOptions) {
    const Chosen program = of("gla");
    CompileOptions options;
    options.device = "cuda", options.on = "h200", options.sizes = {{"K", 128}, {"V", 128}};
    const GpuFacts gpu = facts_of("h200");
    const ir::Function& fn = program.module.entry("forward").optimised;
    const Choice all = program.on(compiler::ask(fn, options, &gpu).question, Range::All);
    for (const Candidate& c : all.candidates) {
        if (!c.possible()) continue;
        const CompileOptions again = compiler::asking_for(options, c);
        EXPECT_TRUE(same_choice(program.on(compiler::ask(fn, again, &gpu).question).schedule, c.schedule))
            << plan::to_string(c.schedule);
    }
}

}  // namespace
}  // namespace forge::target
