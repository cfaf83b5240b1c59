/// Kernels for warp groups, run: the emitted source, compiled for the CPU with fibers for threads (emulated/), against the float64
/// recurrence. Warps run, and copies and products end, in orders that differ from seed to seed and must leave the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "check/check.h"
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
    plan::Strategy strategy = plan::Strategy::OnePass;
    std::int64_t tasks = kFewTasks;
    DType dtype = BF16;
};

plan::Plan plan_for(const ir::Definition& def, const Example& example) {
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = {{"K", 128}, {"V", 128}}});
    schedule::FitWishes wishes;
    wishes.strategy = example.strategy;
    wishes.expected_tasks = example.tasks;
    wishes.expected_tokens = 32768;
    return plan::make_plan(def, program, sizes, schedule::fit_warp_groups(def, program, sizes, kHopper, wishes));
}

class WarpGroupKernels : public testing::TestWithParam<Example> {};

TEST_P(WarpGroupKernels, DoWhatTheRecurrenceSays) {
    const Example& example = GetParam();
    const ir::Definition declared = program_named(example.program).make().define();
    static const emulated::Device device;
    const emulated::Program program(device, example.program, plan_for(frontend::with_dtype(declared, example.dtype), example));
    check::Buffers buffers(declared, {.T = 150, .H = 1, .sizes = {{"K", 128}, {"V", 128}}, .dtype = example.dtype, .initial_state = true});
    const check::Reference reference = check::reference(buffers, 64);
    check::clear_results(buffers);
    program.run(buffers.call(), 1);
    for (const check::Difference& d : check::compare(buffers, reference).differences) EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
}

INSTANTIATE_TEST_SUITE_P(Emulated, WarpGroupKernels, testing::Values(Example{"linear_attention"}), [](const auto& test) { return test.param.program; });

}  // namespace
}  // namespace forge::tests
