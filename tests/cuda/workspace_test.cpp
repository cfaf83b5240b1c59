/// Workspaces from bounds: never less than what a call within them uses, on either device, and never falling as a bound
/// rises.
#include <gtest/gtest.h>

#include "check/problem.h"
#include "emit/callable.h"
#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "runtime/device_call.h"
#include "runtime/named_arguments.h"
#include "target/channels/channels.h"
#include "target/hopper/warp_groups.h"
#include "target/simt/shared_memory.h"
#include "tests/support/entries.h"

namespace forge {
namespace {

/// The plans that a GPU of Hopper's size may get for a program: its channels if it has them, and every strategy.
std::vector<plan::Plan> plans_of(const variants::Entry& entry) {
    const ir::Definition def = frontend::with_dtype(entry.make().define(), BF16);
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = {{"K", 64}, {"V", 64}, {"D", 64}}});
    std::vector<plan::Plan> plans;
    for (const int multiprocessors : {0, 1})  // joined through the workspace, or by clusters
        try {
            plans.push_back(plan::make_plan(def, program, sizes,
                                            target::fit_channels(def, program, sizes, {}, 256, multiprocessors)));
        } catch (const Refused&) {}
    for (const plan::Strategy strategy :
         {plan::Strategy::OnePass, plan::Strategy::Fused, plan::Strategy::Decoupled, plan::Strategy::Segmented}) {
        target::FitWishes wishes;
        wishes.strategy = strategy;
        wishes.segments = strategy == plan::Strategy::Segmented ? 5 : 0;
        try {
            plans.push_back(plan::make_plan(def, program, sizes,
                                            target::fit_shared_memory(def, program, sizes, {220 * 1024, 132}, wishes)));
        } catch (const CompileError& error) {  // a state whose rows turn has no segments
            EXPECT_EQ(strategy, plan::Strategy::Segmented) << error.what();
        }
        wishes.expected_tokens = 100000;  // several summaries per segment
        const auto add_warp_groups = [&] {
            try {
                plans.push_back(plan::make_plan(
                    def, program, sizes,
                    target::fit_warp_groups(def, program, sizes, {220 * 1024, 132, 227 * 1024}, wishes)));
            } catch (const plan::NotForWarpGroups&) {
            } catch (const CompileError&) {}
        };
        add_warp_groups();
        if (strategy != plan::Strategy::OnePass) continue;
        wishes.expected_tasks = 300, wishes.segments = 5;  // one after the other
        add_warp_groups();
    }
    return plans;
}

std::size_t within(const plan::Plan& plan, std::int64_t sequences, std::int64_t tokens, std::int64_t heads,
                   bool packed) {
    const runtime::Callable callable = emit::callable_of(plan);
    return runtime::device_workspace_bytes(callable, runtime::bind(callable, Bounds{sequences, tokens, heads, packed}));
}

// Kernels divide numbers of rows by 32 bits.
TEST(DeviceCalls, OfMoreTokensThanKernelsCountAreRefused) {
    const ir::Definition def = tests::program_named("scalar_gla").make().define();
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = {{"K", 64}, {"V", 64}};
    const runtime::Callable callable = emit::callable_of(
        plan::make_plan(def, program, sizes, target::fit_shared_memory(def, program, sizes, {220 * 1024, 132}, {})));
    for (const std::int64_t tokens : {(std::int64_t{1} << 31) - 1, std::int64_t{1} << 31}) {
        const check::Buffers buffers(def, {.T = 1, .H = 1, .sizes = {{"K", 64}, {"V", 64}}, .dtype = BF16});
        Call call = buffers.call();
        for (auto& [name, x] : call.tensors)
            if (x.shape.size() > 1)
                x = dense(x.data, x.dtype, [&] {
                    x.shape[1] = tokens;
                    return x.shape;
                }());
        const runtime::NamedArguments arguments(callable, call);
        const runtime::Bound bound = runtime::bind(callable, arguments, runtime::Lengths::OnDevice);
        const auto lay_out = [&] { return runtime::DeviceLayout(callable, arguments, bound, 132); };
        if (tokens < std::int64_t{1} << 31) {
            EXPECT_NO_THROW(lay_out());
            continue;
        }
        try {
            lay_out();
            FAIL() << "was not refused";
        } catch (const RuntimeError& error) {
            EXPECT_STREQ(
                error.what(),
                "scalar_gla: expected at most 2147483647 tokens per sequence on a GPU, got 2147483648; cut the call "
                "into several, joined by its states");
        }
    }
}

class Workspace : public testing::TestWithParam<variants::Entry> {};

TEST_P(Workspace, OfBoundsIsEnoughForCalls) {
    const ir::Definition def = GetParam().make().define();
    for (const plan::Plan& plan : plans_of(GetParam()))
        for (const bool packed : {false, true})
            for (const std::int64_t T : {0, 1, 63, 64, 65, 200, 1000}) {
                check::Problem problem{
                    .B = 3, .T = T, .H = 2, .sizes = {{"K", 64}, {"V", 64}, {"D", 64}}, .dtype = BF16};
                if (packed) problem.lengths = {T, 0, 7};
                check::Buffers buffers(def, problem);
                const runtime::Callable callable = emit::callable_of(plan);
                const Call call = buffers.call();
                const runtime::NamedArguments arguments(callable, call);
                const std::size_t used = runtime::device_workspace_bytes(
                    callable, runtime::bind(callable, arguments, runtime::Lengths::OnDevice));
                EXPECT_LE(used, within(plan, 3, packed ? T + 7 : T, 2, packed))
                    << to_string(plan.schedule) << ", " << T << " tokens";
            }
}

TEST_P(Workspace, OfBoundsNeverFalls) {
    for (const plan::Plan& plan : plans_of(GetParam()))
        for (const bool packed : {false, true}) {
            std::size_t before = 0;
            for (std::int64_t T = 0; T < 2000; T += 37) {
                const std::size_t bytes = within(plan, 3, T, 2, packed);
                EXPECT_GE(bytes, before) << to_string(plan.schedule) << ", " << T << " tokens";
                EXPECT_LE(bytes, within(plan, 4, T, 2, packed));
                EXPECT_LE(bytes, within(plan, 3, T, 3, packed));
                before = bytes;
            }
        }
}

INSTANTIATE_TEST_SUITE_P(All, Workspace, testing::ValuesIn(variants::all()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace forge
