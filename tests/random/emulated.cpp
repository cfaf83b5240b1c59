#include <fmt/format.h>

#include <functional>
#include <memory>

#include "emit/callable.h"
#include "tests/cuda/emulated/channel_program.h"
#include "tests/cuda/emulated/program.h"
#include "tests/random/gpu_plans.h"
#include "tests/random/gradients.h"
#include "tests/random/served.h"

namespace forge::fuzz {
namespace {

std::string next_name() {
    static int count = 0;
    return fmt::format("random_{}", count++);
}

/// Fewer blocks with tiles in global memory than there are tasks, which they then take one after the other.
plan::Plan with_few_blocks(plan::Plan plan) {
    if (plan.schedule.far_blocks > 0) plan.schedule.far_blocks = 2;
    return plan;
}

/// Of clusters as many in any order, or other bits might come out.
int blocks_of(const plan::Plan& plan, unsigned order) {
    return plan.schedule.clusters ? 3 : 1 + 2 * static_cast<int>(order - 1);
}

/// In several orders of blocks and threads, the first problem more often.
std::vector<std::string> faults_of(Subject& s, const GpuPlan& made, unsigned orders, Tally& tally,
                                   const std::function<void(const Call&, unsigned order)>& run) {
    const plan::Schedule& schedule = made.plan.schedule;
    Served served{"emulated", made.how, plan::to_string(schedule.engine),
                  [&](const Call& call, const auto&, unsigned turn) { run(call, turn); }};
    served.state_dtype = made.plan.state_dtype;
    served.kept_chunk = made.keeps_states ? schedule.chunk : 0;
    served.same_bits = schedule.strategy != plan::Strategy::Segmented;
    served.wants_zeros = !emit::callable_of(made.plan).clears_skipped;
    std::vector<std::string> found;
    for (const int index : {0, 1}) {
        served.turns = index == 0 ? orders : 1;
        if (found.empty()) found = faults_of_calls(s, index, served, tally);
    }
    return found;
}

std::vector<std::string> faults_of_channels(Subject& s, Tally& tally) {
    const auto made = channels_plan(s, "channels", kH200);
    if (!made) return {};
    const emulated::ChannelProgram program(next_name(), made->plan);
    ++tally["emulated: channels"];
    return faults_of(s, *made, 2, tally,
                     [&](const Call& call, unsigned order) { program.run(call, blocks_of(made->plan, order), order); });
}

/// Gradients, if channels can have them, whatever strategy others would take.
std::vector<std::string> faults_of_channel_gradients(Subject& s, Tally& tally) {
    const auto made = channels_backward_plan(s, "channels_backward", kH200);
    if (!made) return {};
    const emulated::ChannelProgram program(next_name(), made->plan);
    const BackwardProblem problem(s.program, make_problem(s.d, s.program, "b0", 64));
    const int blocks = s.d.pick("channels_backward.blocks", {1, 1, 1}) + 1;
    ++tally["emulated: gradients by channels"];
    return problem.faults([&](check::Buffers& buffers) { program.run(buffers.call(), blocks, 1); }, 64, tally);
}

}  // namespace

Engine emulated_engine(std::function<bool(std::uint64_t)> run) {
    return {"emulated", [run = std::move(run)](Subject& s, Tally& tally) {
                std::vector<std::string> found;
                if (!run(s.d.seed())) return found;
                if (const auto made = warp_groups_plan(s, "warp", tally)) {
                    const emulated::Program program(next_name(), with_few_blocks(made->plan));
                    found = faults_of(s, *made, 2, tally,
                                      [&](const Call& call, unsigned order) { program.run(call, order); });
                    ++tally[fmt::format("emulated: {}", plan::to_string(made->plan.schedule.engine))];
                    if (made->plan.schedule.epilogue) ++tally["emulated: epilogues"];
                }
                if (!found.empty()) return found;
                if (const auto made = portable_plan(s, "portable90", kH200)) {
                    const emulated::Program program(next_name(), with_few_blocks(made->plan));
                    found = faults_of(s, *made, 1, tally,
                                      [&](const Call& call, unsigned order) { program.run(call, order); });
                    ++tally[is_half(made->plan.state_dtype) ? "emulated: states of 16 bits" : "emulated: portable"];
                }
                return found.empty() ? faults_of_channels(s, tally) : found;
            }};
}

Engine emulated_channels_engine() {
    return {"emulated-channels", [](Subject& s, Tally& tally) {
                auto found = faults_of_channels(s, tally);
                return found.empty() ? faults_of_channel_gradients(s, tally) : found;
            }};
}

Engine emulated_backward_engine(std::function<bool(std::uint64_t)> run) {
    return {"emulated backward", [run = std::move(run)](Subject& s, Tally& tally) -> std::vector<std::string> {
                constexpr double kOfTiles = 0.35;  // whose text CPUs run too
                if (!run(s.d.seed())) return {};
                const BackwardPlan made = backward_plan(s, "emulated_backward", tally);
                if (made.plan.schedule.engine == plan::Engine::Tiles && !s.d.flip("emulated_backward.tiles", kOfTiles))
                    return {};
                const bool channels = made.plan.schedule.engine == plan::Engine::Channels;
                std::function<void(const Call&)> run_once;
                if (channels) {
                    const auto program = std::make_shared<emulated::ChannelProgram>(next_name(), made.plan);
                    const int blocks = s.d.pick("emulated_backward.blocks", {1, 1, 1}) + 1;
                    run_once = [=](const Call& call) { program->run(call, blocks, 1); };
                } else {
                    const auto program = std::make_shared<emulated::Program>(next_name(), with_few_blocks(made.plan));
                    run_once = [=](const Call& call) { program->run(call, 1); };
                }
                const BackwardProblem problem(made.program, make_problem(s.d, made.program, "b0", 64), made.entry);
                ++tally[std::string("emulated: backward, ") + plan::to_string(made.plan.schedule.engine)];
                UnitsRound units;
                if (made.plan.schedule.has_fragments()) {
                    units.floats = 0x1p-16;  // of numbers up to half a last bit
                    units.decays_operands = true;
                    // Of tf32, whose 11 bits are those of f16: products of such matrices are of two parts.
                    if (made.program.dtype == BF16) units.decayed = 0x1p-11;
                }
                const auto call = [&](check::Buffers& buffers) {
                    run_once(buffers.call());
                    call_in_pools(s.d, "emulated_backward", buffers, !emit::callable_of(made.plan).clears_skipped,
                                  run_once);
                };
                return problem.faults(call, made.plan.schedule.chunk, tally, units);
            }};
}

}  // namespace forge::fuzz
