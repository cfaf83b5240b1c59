/// Scans whose segments are tasks of their own, one after the other, run on emulated warp groups: the numbers are those
/// of one pass, to the bit, whichever block starts first.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "check/check.h"
#include "check/suite.h"
#include "emit/callable.h"
#include "frontend/join.h"
#include "frontend/trace.h"
#include "graph/derive.h"
#include "graph/pipeline.h"
#include "runtime/binding.h"
#include "runtime/named_arguments.h"
#include "target/hopper/warp_groups.h"
#include "target/simt/shared_memory.h"
#include "tests/cuda/emulated/program.h"
#include "tests/cuda/in_place.h"
#include "tests/support/entries.h"

namespace forge::tests {
namespace {

struct Example {
    std::string program;
    DType dtype;
    std::int64_t k, v, tasks;  ///< heads of sequences that are expected
    std::int64_t segments;
    const char* says;  ///< of how the scan is made

    [[nodiscard]] ir::Definition definition() const {
        return frontend::with_dtype(graph::with_phases(program_named(program.c_str()).make().define()), dtype);
    }
};
void PrintTo(const Example& e, std::ostream* out) { *out << e.program << ", " << e.says; }

plan::Plan plan_for(const Example& example, std::int64_t segments) {
    constexpr target::SharedMemory kHopper{220 * 1024, 132, 227 * 1024};
    const ir::Definition def = example.definition();
    const ir::Function program = graph::optimize(frontend::join(def));
    const tile::Sizes sizes = check::sizes_for(def, {.sizes = {{"K", example.k}, {"V", example.v}}});
    target::FitWishes wishes;
    wishes.strategy = plan::Strategy::OnePass, wishes.segments = segments;
    wishes.expected_tasks = example.tasks, wishes.expected_tokens = 8192;
    return plan::make_plan(def, program, sizes, target::fit_warp_groups(def, program, sizes, kHopper, wishes));
}

std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

class Relays : public testing::TestWithParam<Example> {};

TEST_P(Relays, HaveTheBitsOfOnePass) {
    const Example& example = GetParam();
    const plan::Plan one_pass = plan_for(example, 1), relay = plan_for(example, example.segments);
    ASSERT_TRUE(relay.schedule.is_relay()) << plan::to_string(relay.schedule);
    ASSERT_EQ(relay.kernels.back().graph.loop, plan::Loop::Relay);
    EXPECT_NE(plan::to_string(relay.schedule).find(example.says), std::string::npos) << plan::to_string(relay.schedule);
    const std::string name = fmt::format("{}_{}_{}", example.program, forge::to_string(example.dtype), example.v);
    const emulated::Program whole(name + "_whole", one_pass), parts(name + "_relay", relay);
    for (check::Problem problem :
         {check::Problem{.B = 3, .T = 330, .H = 2, .initial_state = true}, check::Problem{.B = 1, .T = 64 * 4, .H = 1},
          check::Problem{.B = 2, .T = 20, .H = 1, .initial_state = true},
          check::Problem{.H = 2, .lengths = {70, 0, 1, 330}, .initial_state = true}}) {
        problem.sizes = {{"K", example.k}, {"V", example.v}}, problem.dtype = example.dtype;
        check::Buffers buffers(example.definition(), problem);
        const check::Reference reference = check::reference(buffers, 64);
        whole.run(buffers.call(), 1);
        const auto expected = results(buffers);
        for (const unsigned seed : {1U, 2U}) {
            SCOPED_TRACE(fmt::format("{} tokens, seed {}", problem.T, seed));
            check::clear_results(buffers);
            parts.run(buffers.call(), seed);
            for (const check::Difference& d : check::compare(buffers, reference).differences)
                EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms << " at token " << d.first_bad_token;
            EXPECT_EQ(results(buffers), expected) << "other bits";
        }
        check::clear_results(buffers);
        if (problem.initial_state) {
            run_in_place(parts, buffers, 2);
            EXPECT_EQ(results(buffers), expected) << "other bits in place";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Some, Relays,
    testing::Values(Example{"scalar_gla", BF16, 128, 128, 160, 3, "blocks of 2 tiles"},
                    Example{"gated_delta_net", F16, 128, 128, 160, 2, "with work ahead of the scan, blocks of 2 tiles"},
                    Example{"scalar_gla", BF16, 64, 64, 300, 4, "a producer of inputs for each of two tasks"}),
    [](const auto& test) {
        return fmt::format("{}_{}_{}", test.param.program, forge::to_string(test.param.dtype), test.param.v);
    });

// A kernel that was planned for many tasks is called with others, too.
TEST(RelayCalls, HaveSegmentsWhereTheseFillTheLastRoundBetter) {
    const Example example{"scalar_gla", BF16, 128, 128, 160, 0, ""};
    const plan::Plan relay = plan_for(example, 0);
    ASSERT_TRUE(relay.schedule.is_relay());
    EXPECT_EQ(relay.schedule.relay_lanes, 132);
    const runtime::Callable callable = emit::callable_of(relay);
    const std::int64_t tokens = 64 * relay.schedule.segments;
    for (const auto& [heads, segments] : std::map<std::int64_t, std::int64_t>{
             {1, 1}, {132, 1}, {133, relay.schedule.segments}, {160, relay.schedule.segments}, {264, 1}}) {
        const check::Buffers buffers(
            example.definition(),
            {.T = tokens, .H = heads, .sizes = {{"K", example.k}, {"V", example.v}}, .dtype = example.dtype});
        const Call call = buffers.call();
        EXPECT_EQ(runtime::bind(callable, runtime::NamedArguments(callable, call), runtime::Lengths::OnDevice).segments,
                  segments)
            << heads << " heads";
    }
}

// What a faulty kernel would not do is seen: a segment that does not wait, and one that starts from nothing.
TEST(RelayFaults, AreFound) {
    const Example example{"scalar_gla", BF16, 128, 128, 160, 3, ""};
    const plan::Plan relay = plan_for(example, example.segments);
    check::Problem problem{.B = 2, .T = 330, .H = 1, .sizes = {{"K", 128}, {"V", 128}}, .dtype = BF16};
    check::Buffers buffers(example.definition(), problem);
    const check::Reference reference = check::reference(buffers, 64);
    const auto is_right = [&](const char* what, const std::string& from, const std::string& to) {
        const emulated::Program program(what, relay, [&](std::string& source) {
            const std::size_t at = source.find(from);
            ASSERT_NE(at, std::string::npos) << from;
            source.replace(at, from.size(), to);
        });
        check::clear_results(buffers);
        try {
            program.run(buffers.call(), 1);
        } catch (const std::runtime_error&) {
            return false;
        }
        return check::compare(buffers, reference).ok;
    };
    EXPECT_TRUE(is_right("sound", "pass_on(call, at, 2);", "pass_on(call, at, 2);"));
    EXPECT_FALSE(is_right("kept", "pass_on(call, at, 2);", ""));
    EXPECT_FALSE(is_right("from_nothing", "if (at.row > 0) {", "if (false) {"));
    EXPECT_FALSE(is_right("by_block", "next_of_relay(call, scratch)", "(gridDim.x - 1 - blockIdx.x)"));
}

}  // namespace
}  // namespace forge::tests
