/// The portable kernels that decode on a GPU, run on a CPU (emulated/) against the float64 recurrence; states in place.
#include <gtest/gtest.h>

#include "check/check.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "program/entry_point.h"
#include "target/simt/shared_memory.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

class DecodeKernels : public testing::TestWithParam<Entry> {};

TEST_P(DecodeKernels, DoWhatTheRecurrenceSays) {
    constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};
    const ir::Definition declared = GetParam().make().define();
    if (!program::has_decode(declared)) GTEST_SKIP() << "defined per chunk";
    const ir::Definition def = frontend::with_own_axes(frontend::with_dtype(declared, BF16));
    const check::Problem several{.B = 3, .T = 5, .H = 2, .HV = 2, .sizes = {{"K", 36}, {"V", 64}}, .dtype = BF16};
    check::Problem one = several, packed = several;
    one.T = 1, one.initial_state = true;
    packed.lengths = {2, 0, 1, 16}, packed.initial_state = true;
    const program::EntryPoint entry = program::decode(def);
    const tile::Sizes sizes = frontend::own_sizes(def, check::sizes_for(declared, one));
    for (const std::int64_t tasks : {1, 4096}) {  // scans of parts of an axis, and of whole states
        target::FitWishes wishes;
        wishes.strategy = plan::Strategy::OnePass, wishes.chunk = entry.chunk;
        wishes.expected_tasks = tasks, wishes.expected_tokens = 1;
        const plan::Plan plan = plan::make_plan(
            def, entry.optimised, sizes, target::fit_shared_memory(def, entry.optimised, sizes, kHopper, wishes));
        EXPECT_EQ(plan.kernels.size(), 1U) << "one launch";
        const emulated::Program program("decode_" + def.name, plan);
        for (const check::Problem& problem : {one, several, packed}) {
            check::Buffers buffers(declared, problem);
            const check::Reference reference = check::reference(buffers, 1);
            Call call = buffers.call();
            program.run(call, 1);
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << ", " << plan::to_string(plan.schedule);
            if (!problem.initial_state) continue;
            const auto apart = buffers.final_states;
            for (auto& [state, view] : call.final_states) view.data = call.initial_states.at(state).data;
            program.run(call, 2);
            for (const auto& [state, x] : apart)
                EXPECT_EQ(buffers.initial_states.at(state).storage, x.storage) << state << " in place";
        }
    }
}

// States of 16 bits are read, computed with and rounded: what float32 ones would have been.
TEST(DecodeKernelStates, OfSixteenBitsAreThoseOfFloatsRounded) {
    const ir::Definition declared = program_named("gated_delta_net").make().define();
    const ir::Definition def = frontend::with_own_axes(frontend::with_dtype(declared, BF16));
    const check::Problem problem{
        .B = 2, .T = 3, .H = 2, .sizes = {{"K", 36}, {"V", 64}}, .dtype = BF16, .initial_state = true};
    const program::EntryPoint entry = program::decode(def);
    const tile::Sizes sizes = frontend::own_sizes(def, check::sizes_for(declared, problem));
    target::FitWishes wishes;
    wishes.strategy = plan::Strategy::OnePass, wishes.chunk = entry.chunk, wishes.expected_tokens = 1;
    plan::Plan plan =
        plan::make_plan(def, entry.optimised, sizes,
                        target::fit_shared_memory(def, entry.optimised, sizes, {220 * 1024, 132, 227 * 1024}, wishes));
    check::Buffers buffers(declared, problem), wanted(declared, problem);
    check::OwnedTensor &given = wanted.initial_states.at("s"), stored(BF16, given.shape, -1, false);
    for (std::int64_t i = 0; i < given.count(); ++i) stored.set(i, given.at(i)), given.set(i, stored.at(i));
    emulated::Program("decode_floats", plan).run(wanted.call(), 1);
    plan.state_dtype = BF16;
    Call call = buffers.call();
    call.initial_states["s"] = call.final_states["s"] = stored.view();
    emulated::Program("decode_halves", plan).run(call, 1);
    EXPECT_EQ(buffers.outputs.at("o").storage, wanted.outputs.at("o").storage);
    check::OwnedTensor rounded(BF16, given.shape, -1, false);
    for (std::int64_t i = 0; i < given.count(); ++i) rounded.set(i, wanted.final_states.at("s").at(i));
    EXPECT_EQ(stored.storage, rounded.storage);
}

INSTANTIATE_TEST_SUITE_P(All, DecodeKernels, testing::ValuesIn(all_programs()), name_of);

}  // namespace
}  // namespace forge::tests
