/// Channel kernels, run: the emitted source, compiled for the CPU with fibers for threads (emulated/), against the
/// float64 recurrence. Blocks run in orders that differ from seed to seed and must leave the same bits.
#include "target/channels/channels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "build/cuda_binary.h"
#include "check/check.h"
#include "check/suite.h"
#include "emit/cuda/channel_walks.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "graph/token_program.h"
#include "program/entry_point.h"
#include "support/environment.h"
#include "tests/cuda/channel_forms.h"
#include "tests/cuda/emulated/channel_program.h"
#include "tests/novel/novel.h"
#include "tests/support/expected.h"
#include "tests/support/turns.h"

namespace forge {
namespace {

using variants::Entry;

/// How the tiles of a sequence are joined.
enum class Joined : std::uint8_t { LookBack, Clusters };

plan::Schedule schedule_for(const ir::Definition& def, const tile::Sizes& sizes, int threads, Joined joined) {
    return target::fit_channels(def, graph::optimize(frontend::join(def)), sizes, {}, threads,
                                joined == Joined::Clusters ? 1 : 0);
}

ir::Function program_of(const ir::Definition& def) {
    return graph::token_program(graph::optimize(frontend::join(def)));
}

plan::Plan plan_for(const ir::Definition& def, const tile::Sizes& sizes, int threads, Joined joined) {
    return plan::make_plan(def, graph::optimize(frontend::join(def)), sizes, schedule_for(def, sizes, threads, joined));
}

std::vector<Entry> channel_programs() {
    std::vector<Entry> found;
    for (const auto* list : {&variants::all(), &novel::all()})
        for (const Entry& entry : *list) {
            const ir::Definition def = entry.make().define();
            try {
                static_cast<void>(schedule_for(def, check::sizes_for(def, {}), 64, Joined::LookBack));
                found.push_back(entry);
            } catch (const Refused&) {  // tests/cuda/reasons_test.cpp has the reasons
            }
        }
    return found;
}

/// Of the zoo, or of this test.
ir::Definition program_named(const std::string& name) {
    for (const auto& form :
         {tests::numbers, tests::norms, tests::maxima, tests::sequential, tests::counts, tests::lengths, tests::gains,
          tests::beside, tests::clamped, tests::selective, tests::three_rows})
        if (form().name == name) return form();
    return tests::program_named(name.c_str()).make().define();
}

TEST(ChannelPrograms, AreThoseOfNumbersThatDecayByThemselves) {
    std::vector<std::string> names;
    for (const Entry& entry : channel_programs()) names.push_back(entry.name);
    EXPECT_EQ(names, (std::vector<std::string>{"hgrn", "hawk", "leaky_averages", "elementwise_decay"}));
}

TEST(ChannelPrograms, AreCompiledWithoutSpills) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    struct Target {
        const char* arch;
        int threads;
        DType dtype;
        Joined joined;
    };
    using enum Joined;
    const std::vector<Target> targets = {{"sm_80", 256, F16, LookBack},  {"sm_90", 512, F16, Clusters},
                                         {"sm_90", 512, BF16, LookBack}, {"sm_90", 512, F32, Clusters},
                                         {"sm_80", 256, F32, LookBack},  {"sm_90", 256, BF16, Clusters}};
    std::vector<std::string> names = {"numbers", "norms", "maxima", "sequential", "selective", "three_rows"};
    for (const Entry& entry : channel_programs()) names.push_back(entry.name);
    std::size_t turn = 0;
    for (const std::string& name : names)
        for (const auto& [arch, threads, dtype, joined] : tests::in_turn(2 * turn++, targets, 2)) {
            const ir::Definition def = frontend::with_dtype(program_named(name), dtype);
            const std::int64_t channels = graph::mixes_channels(program_of(def)) ? 128 : 1024;
            const auto plan = plan_for(def, {{"D", channels}, {"K", 16}, {"V", 128}}, threads, joined);
            const build::CudaBinary binary =
                build::build_cuda_binary(name, emit::emit_cuda(plan), arch, support::default_cache_dir());
            ASSERT_EQ(binary.kernels.size(), plan.last_rows.empty() ? 1U : 2U) << binary.report;
            for (const build::KernelReport& kernel : binary.kernels)
                EXPECT_EQ(kernel.spill_bytes, 0) << name << "\n" << binary.report;
        }
}

TEST(ChannelPrograms, HaveGradientsWithoutSpills) {
    if (!build::has_cuda_compiler(build::CudaCompiler::Any))
        GTEST_SKIP() << "neither libnvrtc nor nvcc is on this machine";
    using Target = std::tuple<const char*, int, DType, int>;
    const std::vector<Target> targets = {
        {"sm_80", 256, F16, 0}, {"sm_90", 512, BF16, 1}, {"sm_90", 512, F32, 1}, {"sm_90", 0, BF16, 1}};
    std::size_t turn = 0;
    for (const char* name : {"counts", "maxima", "sequential", "lengths", "gains", "hgrn", "hawk", "selective",
                             "three_rows", "elementwise_decay"})
        for (const auto& [arch, threads, dtype, multiprocessors] : tests::in_turn(turn++, targets, 1)) {
            const program::EntryPoint entry = program::backward(frontend::with_dtype(program_named(name), dtype));
            const tile::Sizes sizes = {{"D", 128}, {"K", 16}, {"V", 128}};
            const plan::Schedule schedule =
                target::fit_channels(entry.tensors, entry.optimised, sizes, {}, threads, multiprocessors);
            const plan::Plan plan = plan::make_plan(entry.tensors, entry.optimised, sizes, schedule);
            const build::CudaBinary binary =
                build::build_cuda_binary(name, emit::emit_cuda(plan), arch, support::default_cache_dir());
            for (const build::KernelReport& kernel : binary.kernels)
                EXPECT_EQ(kernel.spill_bytes, 0) << name << "\n" << binary.report;
        }
}

TEST(ChannelPrograms, HaveFewerThreadsIfStatesAreMany) {
    const program::EntryPoint entry = program::backward(program_named("hawk"));
    const auto threads = [&](std::int64_t bytes) {
        target::FitWishes wishes;
        wishes.expected_tokens = 32768;
        return target::fit_channels(entry.tensors, entry.optimised, {{"D", 64}}, wishes, 0, 1, bytes).block_threads;
    };
    EXPECT_EQ(threads(227 * 1024), 512);
    EXPECT_EQ(threads(28 * 1024), 256);
    EXPECT_EQ(threads(16 * 1024), 128);
    EXPECT_THROW(threads(8 * 1024), Refused);
}

TEST(ChannelPrograms, AreOthersIfChunksOrStrategiesMatter) {
    ir::Definition def = variants::find("hgrn")->make().define();
    const ir::Function program = graph::optimize(frontend::join(def));
    target::FitWishes wishes;
    const auto fit = [&](const target::FitWishes& wanted) {
        return target::fit_channels(def, program, {{"D", 64}}, wanted, 0, 0);
    };
    EXPECT_EQ(fit(wishes).engine, plan::Engine::Channels);
    wishes.strategy = plan::Strategy::Segmented;
    EXPECT_THROW(fit(wishes), Refused);
    def.fixed_chunk = 64;
    EXPECT_THROW(fit({}), Refused);
    def.fixed_chunk = 0;
    def.step.reset();  // chunks of any size are the same thing, as far as numbers tell
    EXPECT_EQ(fit({}).engine, plan::Engine::Channels);
}

TEST(ChannelPrograms, HaveAllChannelsOfAHeadInATaskIfTheyMeet) {
    const auto parts = [](std::int64_t channels) {
        const plan::Plan plan = plan_for(tests::norms(), {{"D", channels}}, 256, Joined::LookBack);
        return emit::launch_of(plan, plan.kernels[0]).parts;
    };
    EXPECT_EQ(parts(64), 1);
    EXPECT_EQ(parts(128), 1);
    EXPECT_THROW(parts(129), Refused);
}

TEST(ChannelPrograms, HaveHeadsForChannelsIfStatesAreNumbers) {
    const plan::Plan plan = plan_for(tests::numbers(), {}, 256, Joined::LookBack);
    EXPECT_EQ(emit::launch_of(plan, plan.kernels[0]).head_channels, 64);
    const std::vector<emit::ChannelState> states = emit::states_of(plan.kernels[0].tiles.fn);
    ASSERT_EQ(states.size(), 2U);
    EXPECT_TRUE(states[0].maximum);
    EXPECT_FALSE(states[1].maximum);
}

// What a rank tells of its tokens has further states, which phases do not make.
TEST(ChannelPrograms, AreSummariesIfThereIsAStep) {
    const auto fit = [](const ir::Definition& def) {
        const program::EntryPoint summary = program::summary(def);
        return target::fit_channels(summary.tensors, summary.optimised, {{"D", 64}}, {}, 256, 0);
    };
    EXPECT_THROW(fit(tests::norms()), Refused);
    EXPECT_EQ(fit(tests::counts()).engine, plan::Engine::Channels);
    EXPECT_EQ(fit(tests::three_rows()).engine, plan::Engine::Channels);
}

TEST(ChannelPrograms, HaveClustersWhereTheyFillTheGpu) {
    const ir::Definition def = variants::find("hgrn")->make().define();
    const ir::Function program = graph::optimize(frontend::join(def));
    const auto fit = [&](std::int64_t channels, int multiprocessors, std::int64_t tasks, std::int64_t tokens = 4096) {
        target::FitWishes wishes;
        wishes.expected_tasks = tasks, wishes.expected_tokens = tokens;
        return target::fit_channels(def, program, {{"D", channels}}, wishes, 0, multiprocessors);
    };
    EXPECT_FALSE(fit(1024, 0, 1).clusters);
    EXPECT_TRUE(fit(1024, 132, 1).clusters);
    EXPECT_FALSE(fit(64, 132, 1).clusters);
    EXPECT_TRUE(fit(64, 132, 16).clusters);
    EXPECT_EQ(fit(1024, 132, 1).block_threads, 512);
    EXPECT_EQ(fit(1024, 132, 1, 1024).block_threads, 256);
    EXPECT_EQ(fit(64, 132, 1).block_threads, 256);
}

TEST(ChannelPrograms, SourceIsAsBefore) {
    const ir::Definition def = variants::find("hgrn")->make().define();
    for (const auto& [joined, file] :
         {std::pair{Joined::Clusters, "hgrn_clusters.cu"}, {Joined::LookBack, "hgrn_look_back.cu"}})
        EXPECT_TRUE(tests::same_as_file(tests::root() / "tests/golden" / file,
                                        emit::emit_cuda(plan_for(def, {{"D", 1024}}, 256, joined))));
}

/// A program's kernels, ready to be called with tensors in the CPU's memory.
emulated::ChannelProgram emulated_kernel(const ir::Definition& def, const tile::Sizes& sizes, int threads,
                                         Joined joined) {
    return {def.name, plan_for(def, sizes, threads, joined)};
}

struct Example {
    std::string program;
    DType dtype;
    std::int64_t channels;
    int threads;
    Joined joined;
};

/// Of a state of several rows a few: each is a channel more for every value.
std::map<std::string, std::int64_t> sizes_of(const Example& run) {
    return {{"K", std::min<std::int64_t>(run.channels, 20)}, {"V", run.channels}, {"D", run.channels}};
}

class ChannelKernels : public testing::TestWithParam<Example> {
  protected:
    static std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
        std::vector<std::vector<std::byte>> all;
        for (const auto* list : {&buffers.outputs, &buffers.final_states})
            for (const auto& [name, x] : *list) all.push_back(x.storage);
        return all;
    }
};

TEST_P(ChannelKernels, DoWhatTheRecurrenceSays) {
    const Example& run = GetParam();
    const ir::Definition declared = program_named(run.program);
    const std::map<std::string, std::int64_t> sizes = sizes_of(run);
    const ir::Definition def = frontend::with_dtype(declared, run.dtype);
    std::vector<check::Case> cases = check::awkward_cases(declared, run.dtype, sizes, 1);
    const std::size_t half = (cases.size() + 1) / 2;
    cases = tests::in_turn(static_cast<std::size_t>(run.channels + run.threads) / 4, std::move(cases), half);
    if (run.program == "numbers")
        cases.push_back({"many heads", {.B = 2, .T = 300, .H = 70, .dtype = run.dtype, .initial_state = true}});
    cases.push_back({"a sequence of many groups",
                     {.B = 2,
                      .T = 16 * 8 * (run.threads / 32) * 3 + 5,
                      .H = 2,
                      .sizes = sizes,
                      .dtype = run.dtype,
                      .initial_state = true}});
    const emulated::ChannelProgram kernel =
        emulated_kernel(def, check::sizes_for(def, cases[0].problem), run.threads, run.joined);
    for (const check::Case& c : cases) {
        check::Buffers buffers(declared, c.problem);
        const check::Reference reference = check::reference(buffers, 64);
        // Blocks that take tiles leave the same bits whatever their number and order, those of a cluster whatever their
        // order.
        std::vector<std::vector<std::byte>> first;
        const bool clusters = run.joined == Joined::Clusters;
        using Orders = std::vector<std::pair<int, unsigned>>;
        const bool is_long = &c == &cases.back();
        const Orders of_clusters = is_long ? Orders{{1, 1}, {2, 2}, {3, 3}, {3, 4}} : Orders{{3, 3}, {3, 4}},
                     others = is_long ? Orders{{1, 1}, {3, 2}, {5, 3}} : Orders{{1, 1}, {3, 2}};
        for (const auto& [blocks, seed] : clusters ? of_clusters : others) {
            check::clear_results(buffers);
            check::run(buffers, [&, blocks = blocks, seed = seed](check::Buffers& part) {
                kernel.run(part.call(), blocks, seed);
            });
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << c.name << ": " << d.name << " " << d.relative_rms << " at token "
                                  << d.first_bad_token;
            if (first.empty() || (clusters && seed < 4)) first = results(buffers);
            EXPECT_EQ(first, results(buffers)) << c.name << ": other bits with " << blocks << " blocks";
        }
    }
}

// A decay of 0 forgets all earlier states, so that tiles need not wait for one another, unless the last may overwrite
// what the first has yet to read.
class ChannelKernelsInPlace : public testing::TestWithParam<Joined> {};
TEST_P(ChannelKernelsInPlace, FinalStatesMayReplaceInitialOnes) {
    for (const char* name : {"hgrn", "leaky_averages", "elementwise_decay"}) {
        const ir::Definition def = frontend::with_dtype(tests::program_named(name).make().define(), F32);
        const std::map<std::string, std::int64_t> sizes = {{"D", 64}, {"K", 6}, {"V", 64}};
        const emulated::ChannelProgram kernel = emulated_kernel(def, sizes, 64, GetParam());
        const int blocks = GetParam() == Joined::Clusters ? 4 : 7;
        for (const double gate : {-1e-3, -1000.0}) {
            check::Problem problem{.B = 2, .T = 600, .H = 1, .sizes = sizes, .initial_state = true};
            problem.gate = gate;
            check::Buffers buffers(def, problem);
            kernel.run(buffers.call(), blocks, 1);
            const auto apart = buffers.final_states, before = buffers.initial_states;
            const auto outputs = buffers.outputs.at("o").storage;
            for (unsigned seed = 1; seed <= 5; ++seed) {
                buffers.initial_states = before;
                Call call = buffers.call();
                for (auto& [state, view] : call.final_states) view.data = call.initial_states.at(state).data;
                kernel.run(call, blocks, seed);
                for (const auto& [state, x] : apart)
                    EXPECT_EQ(buffers.initial_states.at(state).storage, x.storage) << "gate " << gate << ", " << state;
                EXPECT_EQ(buffers.outputs.at("o").storage, outputs) << "gate " << gate;
            }
        }
    }
}

// Whichever strip has the last token: the state after it is the one that its output was made of, to the last bit.
TEST(ChannelStates, AreThoseOfTheLastToken) {
    const ir::Definition def = frontend::with_dtype(tests::program_named("hgrn").make().define(), F32);
    const std::map<std::string, std::int64_t> sizes = {{"D", 64}};
    const emulated::ChannelProgram kernel = emulated_kernel(def, sizes, 64, Joined::LookBack);
    for (const std::int64_t tokens : {1, 2, 37, 150}) {
        check::Buffers buffers(
            def, check::Problem{.B = 1, .T = tokens, .H = 1, .sizes = sizes, .dtype = F32, .initial_state = true});
        std::vector<std::byte>& q = buffers.inputs.at("q").storage;
        const std::vector<float> ones(q.size() / sizeof(float), 1.0f);
        std::memcpy(q.data(), ones.data(), q.size());
        kernel.run(buffers.call(), 1, 1);
        const auto state = buffers.final_state("h", 0, 0).data, outputs = buffers.output("o", 0, 0).data;
        EXPECT_EQ(state, std::vector<double>(outputs.end() - 64, outputs.end())) << tokens << " tokens";
    }
}

std::string name_of(Joined joined) { return joined == Joined::Clusters ? "clusters" : "look_back"; }

INSTANTIATE_TEST_SUITE_P(Emulated, ChannelKernelsInPlace, testing::Values(Joined::LookBack, Joined::Clusters),
                         [](const auto& test) { return name_of(test.param); });

INSTANTIATE_TEST_SUITE_P(
    Emulated, ChannelKernels,
    testing::Values(
        Example{"hgrn", BF16, 136, 64, Joined::LookBack}, Example{"hgrn", F32, 60, 64, Joined::LookBack},
        Example{"hawk", F16, 130, 128, Joined::LookBack}, Example{"leaky_averages", BF16, 64, 64, Joined::LookBack},
        Example{"hgrn", BF16, 136, 64, Joined::Clusters}, Example{"hgrn", F32, 60, 64, Joined::Clusters},
        Example{"hawk", F16, 130, 128, Joined::Clusters}, Example{"leaky_averages", BF16, 64, 64, Joined::Clusters},
        Example{"numbers", BF16, 1, 64, Joined::LookBack}, Example{"numbers", F32, 1, 128, Joined::Clusters},
        Example{"norms", BF16, 100, 64, Joined::LookBack}, Example{"norms", F16, 128, 64, Joined::Clusters},
        Example{"norms", F32, 20, 128, Joined::LookBack}, Example{"maxima", BF16, 36, 64, Joined::LookBack},
        Example{"maxima", F32, 128, 64, Joined::Clusters}, Example{"lengths", BF16, 100, 64, Joined::LookBack},
        Example{"lengths", F32, 36, 128, Joined::Clusters}, Example{"beside", BF16, 136, 64, Joined::LookBack},
        Example{"beside", F32, 136, 64, Joined::Clusters}, Example{"clamped", F32, 68, 64, Joined::LookBack},
        Example{"sequential", F32, 68, 64, Joined::LookBack}, Example{"sequential", BF16, 128, 128, Joined::Clusters},
        Example{"selective", BF16, 68, 64, Joined::LookBack}, Example{"selective", F32, 16, 64, Joined::Clusters},
        Example{"elementwise_decay", BF16, 20, 64, Joined::LookBack},
        Example{"elementwise_decay", F16, 64, 128, Joined::Clusters},
        Example{"three_rows", BF16, 36, 64, Joined::LookBack}, Example{"three_rows", F32, 68, 64, Joined::Clusters}),
    [](const auto& test) {
        const Example& e = test.param;
        return fmt::format("{}_{}_{}_{}", e.program, to_string(e.dtype), e.channels, name_of(e.joined));
    });

// Backward passes: the way there, the way back and sums over all tokens.
class ChannelGradients : public ChannelKernels {};

TEST_P(ChannelGradients, AreTheAdjointOfTheRecurrence) {
    const Example& run = GetParam();
    const ir::Definition declared = program_named(run.program);
    const std::map<std::string, std::int64_t> sizes = sizes_of(run);
    const program::EntryPoint entry = program::backward(frontend::with_dtype(declared, run.dtype));
    const bool clusters = run.joined == Joined::Clusters;
    const plan::Schedule schedule =
        target::fit_channels(entry.tensors, entry.optimised, check::sizes_for(declared, {.sizes = sizes}), {},
                             run.threads, clusters ? 1 : 0);
    const emulated::ChannelProgram kernels(
        declared.name + "_gradient",
        plan::make_plan(entry.tensors, entry.optimised, check::sizes_for(declared, {.sizes = sizes}), schedule));
    std::vector<check::Problem> problems = {{.T = 150, .H = 3, .initial_state = true},
                                            {.B = 2, .T = 16 * 8 * (run.threads / 32) * 3 + 5, .H = 1},
                                            {.H = 2, .lengths = {70, 0, 1, 130}, .initial_state = true},
                                            {.T = 100, .H = 2, .strided = true}};
    if (check::has_gates(declared))
        for (const double gate : {0.0, -1000.0, -std::numeric_limits<double>::infinity()})
            problems.push_back({.T = 70, .H = 1, .gate = gate});
    problems = tests::in_turn(static_cast<std::size_t>(run.channels) / 4, std::move(problems), 4);
    for (check::Problem& problem : problems) {
        problem.dtype = run.dtype, problem.sizes = sizes;
        check::Buffers buffers(program::tensors_of("backward", declared), problem);
        const check::Reference reference = check::backward_reference(buffers, declared, 64);
        std::vector<std::vector<std::byte>> first;
        for (const auto& [blocks, seed] : {std::pair{3, 1U}, {clusters ? 3 : 5, 2U}}) {
            check::clear_results(buffers);
            kernels.run(buffers.call(), blocks, seed);
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << problem.T << " tokens, gate " << problem.gate << ": " << d.name << " "
                                  << d.relative_rms << " at token " << d.first_bad_token;
            if (first.empty()) first = results(buffers);
            EXPECT_EQ(first, results(buffers)) << "other bits with " << blocks << " blocks";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, ChannelGradients,
    testing::Values(
        Example{"hgrn", BF16, 136, 64, Joined::LookBack}, Example{"hgrn", F32, 60, 64, Joined::Clusters},
        Example{"hawk", F32, 130, 128, Joined::LookBack}, Example{"hawk", F16, 64, 64, Joined::Clusters},
        Example{"maxima", F32, 36, 64, Joined::Clusters}, Example{"counts", F32, 1, 64, Joined::LookBack},
        Example{"lengths", F32, 100, 64, Joined::LookBack}, Example{"lengths", BF16, 128, 64, Joined::Clusters},
        Example{"beside", F32, 128, 64, Joined::LookBack}, Example{"clamped", F32, 68, 64, Joined::Clusters},
        Example{"gains", F32, 100, 64, Joined::LookBack}, Example{"gains", BF16, 128, 128, Joined::Clusters},
        Example{"sequential", F32, 68, 64, Joined::LookBack}, Example{"counts", F32, 1, 64, Joined::Clusters},
        Example{"selective", F32, 20, 64, Joined::LookBack}, Example{"selective", BF16, 68, 64, Joined::Clusters},
        Example{"elementwise_decay", F32, 20, 64, Joined::LookBack},
        Example{"elementwise_decay", BF16, 36, 64, Joined::Clusters},
        Example{"three_rows", F32, 68, 64, Joined::LookBack}, Example{"three_rows", F16, 36, 64, Joined::Clusters}),
    [](const auto& test) {
        const Example& e = test.param;
        return fmt::format("{}_{}_{}_{}", e.program, to_string(e.dtype), e.channels, name_of(e.joined));
    });

}  // namespace
}  // namespace forge
