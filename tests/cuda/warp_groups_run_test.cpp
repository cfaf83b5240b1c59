/// Kernels for warp groups, run: the emitted source, compiled for the CPU with fibers for threads (emulated/), against the float64
/// recurrence. Warps run, and copies and products end, in orders that differ from seed to seed and must leave the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "check/check.h"
#include "check/suite.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/pipeline.h"
#include "schedule/warp_groups.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

constexpr schedule::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};
constexpr std::int64_t kFewTasks = 32, kManyTasks = 512;  ///< several warp groups per task, or one

struct Example {
    std::string program;
    DType dtype = BF16;
    std::int64_t k = 128, v = 128;

    [[nodiscard]] std::map<std::string, std::int64_t> sizes() const { return {{"K", k}, {"V", v}}; }
};

void PrintTo(const Example& e, std::ostream* out) { *out << e.program << ", " << to_string(e.dtype) << ", " << e.k << " x " << e.v; }

/// Nothing if the strategy is not for the program, or it has no kernels for warp groups.
std::optional<plan::Plan> plan_for(const ir::Definition& def, const Example& example, plan::Strategy strategy, std::int64_t tasks) {
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = example.sizes()});
    schedule::FitWishes wishes;
    wishes.strategy = strategy;
    wishes.expected_tasks = tasks;
    wishes.expected_tokens = 32768;
    try {
        return plan::make_plan(def, program, sizes, schedule::fit_warp_groups(def, program, sizes, kHopper, wishes));
    } catch (const plan::NotForWarpGroups&) {
    } catch (const CompileError&) {
    }
    return {};
}

bool has_roles(const plan::Plan& plan) {
    return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const plan::Kernel& k) { return k.tiles.roles.has_value(); });
}

/// Every strategy for few tasks and for many, each source once.
std::vector<std::pair<std::string, plan::Plan>> plans_for(const ir::Definition& def, const Example& example) {
    std::vector<std::pair<std::string, plan::Plan>> plans;
    std::set<std::string> sources;
    for (const plan::Strategy strategy : plan::all_strategies())
        for (const std::int64_t tasks : {kFewTasks, kManyTasks})
            if (const auto plan = plan_for(def, example, strategy, tasks); plan && sources.insert(emit::emit_cuda(*plan)).second)
                plans.emplace_back(fmt::format("{}, {} tasks", plan::to_string(strategy), tasks), *plan);
    return plans;
}

/// A problem with what the recurrence makes of it.
struct Solved {
    std::string name;
    bool many_chunks;  ///< more than there are buffers for
    check::Buffers buffers;
    check::Reference reference;
};

std::vector<Solved> problems_for(const ir::Definition& declared, const Example& example) {
    std::vector<Solved> solved;
    const auto add = [&](const std::string& name, check::Problem problem, bool many_chunks = false) {
        problem.sizes = example.sizes(), problem.dtype = example.dtype;
        check::Buffers buffers(declared, problem);
        check::Reference reference = check::reference(buffers, 64);
        solved.push_back({name, many_chunks, std::move(buffers), std::move(reference)});
    };
    add("ragged", {.T = 150, .H = 1, .initial_state = true});
    add("many chunks", {.T = 330, .H = 1, .initial_state = true}, true);
    add("short", {.B = 2, .T = 20, .H = 1});
    add("one chunk", {.T = 64, .H = 2});
    add("packed", {.H = 1, .lengths = {70, 0, 1, 130}});
    add("packed, initial states", {.H = 1, .lengths = {0, 66, 128}, .initial_state = true});
    add("not aligned", {.T = 100, .H = 1, .initial_state = true, .strided = true});
    if (check::has_grouped_heads(declared)) add("grouped heads", {.T = 70, .H = 1, .HV = 2});
    return solved;
}

std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

void expect_solved(const emulated::Program& program, Solved& problem, const std::vector<unsigned>& seeds) {
    std::vector<std::vector<std::byte>> first;
    for (const unsigned seed : seeds) {
        SCOPED_TRACE(fmt::format("{}, seed {}", problem.name, seed));
        check::clear_results(problem.buffers);
        ASSERT_NO_THROW(program.run(problem.buffers.call(), seed));
        for (const check::Difference& d : check::compare(problem.buffers, problem.reference).differences)
            EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
        if (first.empty()) first = results(problem.buffers);
        EXPECT_EQ(first, results(problem.buffers)) << "other bits";
    }
}

class WarpGroupKernels : public testing::TestWithParam<Example> {};

TEST_P(WarpGroupKernels, DoWhatTheRecurrenceSays) {
    static const emulated::Device device;
    const Example& example = GetParam();
    const ir::Definition declared = program_named(example.program).make().define();
    std::vector<Solved> problems = problems_for(declared, example);
    int count = 0;
    for (const auto& [name, plan] : plans_for(frontend::with_dtype(declared, example.dtype), example)) {
        SCOPED_TRACE(name);
        const emulated::Program program(device, fmt::format("{}_{}", example.program, count++), plan);
        for (Solved& problem : problems) {
            if (!has_roles(plan)) expect_solved(program, problem, {1});
            else if (problem.many_chunks) expect_solved(program, problem, {1, 2, 3});
            else expect_solved(program, problem, {1, 2});
        }
    }
    EXPECT_GT(count, 0);
}

/// Whatever has such kernels, in bf16.
std::vector<Example> all_examples() {
    std::vector<Example> found;
    for (const Entry& entry : all_programs())
        if (!plans_for(frontend::with_dtype(entry.make().define(), BF16), {entry.name}).empty()) found.push_back({entry.name});
    return found;
}

std::string name_of_example(const testing::TestParamInfo<Example>& test) {
    return fmt::format("{}_{}_{}x{}", test.param.program, to_string(test.param.dtype), test.param.k, test.param.v);
}

INSTANTIATE_TEST_SUITE_P(All, WarpGroupKernels, testing::ValuesIn(all_examples()), name_of_example);
INSTANTIATE_TEST_SUITE_P(OfOtherSizes, WarpGroupKernels,
                         testing::Values(Example{"linear_attention", F16, 64, 64}, Example{"gla", F16, 64, 64}, Example{"gated_delta_net", F16, 64, 64},
                                         Example{"linear_attention", BF16, 192, 64}, Example{"scalar_gla", BF16, 256, 64}),
                         name_of_example);

}  // namespace
}  // namespace forge::tests
