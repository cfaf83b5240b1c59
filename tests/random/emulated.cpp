#include <fmt/format.h>

#include <functional>
#include <memory>

#include "emit/callable.h"
#include "tests/cuda/emulated/channel_program.h"
#include "tests/cuda/emulated/program.h"
#include "tests/random/chunk_states.h"
#include "tests/random/gpu_plans.h"
#include "tests/random/gradients.h"
#include "tests/random/half_states.h"

namespace forge::fuzz {
namespace {

std::vector<std::vector<std::byte>> results(const check::Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const auto* list : {&buffers.outputs, &buffers.final_states})
        for (const auto& [name, x] : *list) all.push_back(x.storage);
    return all;
}

/// Runs in several orders: right in each, and the same bits.
template <class Run>
std::vector<std::string> faults_of(Problem& problem, const std::string& how, unsigned orders, Run&& run) {
    std::vector<std::string> found;
    std::vector<std::vector<std::byte>> first;
    for (unsigned order = 1; order <= orders && found.empty(); ++order) {
        check::clear_results(problem.buffers);
        run(problem.buffers.call(), order);
        for (const std::string& fault : problem.faults()) found.push_back(fmt::format("{}: {}", how, fault));
        if (first.empty()) first = results(problem.buffers);
        else if (first != results(problem.buffers)) found.push_back(how + ": other bits in another order");
    }
    return found;
}

/// The same, and once more with the states before chunks, if there are any, and with states in pools, if that is
/// decided.
template <class Run>
std::vector<std::string> faults_with_pools(Subject& s, int index, const GpuPlan& made, unsigned orders, Tally& tally,
                                           Run&& run) {
    Problem& problem = s.problem(index);
    std::vector<std::string> found = faults_of(problem, made.how, orders, run);
    const std::string name = fmt::format("{}.{}", plan::to_string(made.plan.schedule.engine), index);
    const auto add = [&](const std::vector<std::string>& faults) {
        for (const std::string& fault : faults) found.push_back(fmt::format("{}: {}", made.how, fault));
    };
    if (made.keeps_states && found.empty()) {
        ChunkStatesCall kept(s.d, name + ".kept", problem, made.plan.schedule.chunk);
        run(kept.call(), 1);
        add(kept.faults());
        add(problem.faults());
        ++tally["emulated: states before chunks"];
    }
    if (!found.empty()) return found;
    auto pooled = PooledCall::of(s.d, name, problem);
    if (!pooled) return found;
    const Call call = pooled->call();
    if (!emit::callable_of(made.plan).clears_skipped) pooled->clear_outputs();
    run(call, 1);
    add(pooled->take(made.plan.schedule.strategy != plan::Strategy::Segmented));
    add(problem.faults());
    ++tally["emulated: states in pools"];
    return found;
}

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

std::vector<std::string> faults_of_channels(Subject& s, Tally& tally) {
    const auto made = channels_plan(s, "channels", kH200);
    if (!made) return {};
    const emulated::ChannelProgram program(next_name(), made->plan);
    ++tally["emulated: channels"];
    for (const int index : {0, 1})
        if (auto found = faults_with_pools(
                s, index, *made, 2, tally,
                [&](const Call& call, unsigned order) { program.run(call, blocks_of(made->plan, order), order); });
            !found.empty())
            return found;
    return {};
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
                const auto add = [&](std::vector<std::string> more) {
                    for (std::string& text : more) found.push_back(std::move(text));
                };
                if (const auto made = warp_groups_plan(s, "warp", tally)) {
                    const emulated::Program program(next_name(), with_few_blocks(made->plan));
                    for (const int index : {0, 1})
                        if (found.empty())
                            add(faults_with_pools(s, index, *made, index == 0 ? 2 : 1, tally,
                                                  [&](const Call& call, unsigned order) { program.run(call, order); }));
                    ++tally["emulated: warp groups"];
                }
                if (!found.empty()) return found;
                const auto of_tiles = portable_plan(s, "portable90", kH200);
                if (const auto& made = of_tiles) {
                    const emulated::Program program(next_name(), with_few_blocks(made->plan));
                    const DType states = made->plan.state_dtype;
                    for (const int index : {0, 1}) {
                        if (!found.empty() || (is_half(states) && s.problem(index).shape.strided)) continue;
                        add(faults_with_pools(s, index, *made, 1, tally, [&](const Call& call, unsigned order) {
                            HalfStates halves(call, states);
                            program.run(halves.call(), order);
                            halves.take();
                        }));
                    }
                    ++tally[is_half(states) ? "emulated: states of 16 bits" : "emulated: portable"];
                }
                if (found.empty()) add(faults_of_channels(s, tally));
                return found;
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
                if (made.plan.schedule.warp_groups()) {
                    units.floats = 0x1p-16;  // of numbers up to half a last bit
                    // Of tf32, whose 11 bits are those of f16: products of such matrices are of two parts.
                    if (made.program.dtype == BF16) units.decayed = 0x1p-11;
                }
                return problem.faults([&](check::Buffers& buffers) { run_once(buffers.call()); },
                                      made.plan.schedule.chunk, tally, units);
            }};
}

}  // namespace forge::fuzz
