#include <fmt/format.h>

#include <cstring>

#include "emit/callable.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/kernel.h"
#include "emit/last_rows.h"
#include "runtime/device_call.h"
#include "runtime/named_arguments.h"
#include "tests/cuda/emulated/blocks.h"
#include "tests/cuda/emulated/program.h"
#include "tests/random/gpu_plans.h"
#include "tests/random/gradients.h"

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

std::string next_name() {
    static int count = 0;
    return fmt::format("random_{}", count++);
}

void run_channels(const plan::Plan& plan, const emulated::Library& library, Call call, unsigned order) {
    const runtime::Callable callable = emit::callable_of(plan);
    const runtime::Bound bound =
        runtime::bind(callable, runtime::NamedArguments(callable, call), runtime::Lengths::OnDevice);
    std::vector<std::max_align_t> workspace(
        runtime::device_workspace_bytes(callable, bound) / sizeof(std::max_align_t) + 1);
    call.workspace = workspace.data();
    const runtime::NamedArguments named(callable, call);
    const int blocks = plan.schedule.clusters ? 3 : 1 + 2 * static_cast<int>(order - 1);
    const runtime::DeviceLayout layout(callable, named, bound, blocks);
    const runtime::DeviceLayout::KernelCall& kernel = layout.kernels()[0];
    if (kernel.tasks == 0) return;
    const runtime::Addresses addresses = runtime::addresses_of(callable, named);
    cuda::Call arguments = layout.with(addresses);
    runtime::DeviceLayout::select(arguments, kernel, addresses);
    if (kernel.exchange_bytes > 0) std::memset(arguments.exchange, 0xFF, kernel.exchange_bytes);
    const runtime::Launch& how = callable.kernels[0].how;
    const int cluster = plan.schedule.clusters ? blocks : 1,
              all = plan.schedule.clusters ? static_cast<int>(kernel.tasks) * cluster : blocks;
    const auto function =
        reinterpret_cast<void (*)(cuda::Call)>(library.kernel(emit::kernel_symbol(plan.kernels[0])));  // NOLINT: dlsym
    emulated::run(library.machine(), {all, how.threads, cluster, static_cast<std::size_t>(how.shared_bytes), order},
                  [&] { function(arguments); });
    const runtime::DeviceLayout::KernelCall& last = layout.last_rows();
    if (last.tasks == 0) return;
    runtime::DeviceLayout::select(arguments, last, addresses);
    const auto store =
        reinterpret_cast<void (*)(cuda::Call)>(library.kernel(emit::last_rows_symbol(plan)));  // NOLINT: dlsym
    emulated::run(library.machine(), {static_cast<int>(last.tasks), how.threads, 1, 0, order},
                  [&] { store(arguments); });
}

std::vector<std::string> faults_of_channels(Subject& s, Tally& tally) {
    const auto made = channels_plan(s, "channels", kH200);
    if (!made) return {};
    static const emulated::Device device;
    const emulated::Library library(device.build(next_name(), emit::emit_cuda(made->plan)));
    ++tally["emulated: channels"];
    for (const int index : {0, 1})
        if (auto found =
                faults_of(s.problem(index), made->how, 2,
                          [&](const Call& call, unsigned order) { run_channels(made->plan, library, call, order); });
            !found.empty())
            return found;
    return {};
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
                    const emulated::Program program(next_name(), made->plan);
                    for (const int index : {0, 1})
                        if (found.empty())
                            add(faults_of(s.problem(index), made->how, index == 0 ? 2 : 1,
                                          [&](const Call& call, unsigned order) { program.run(call, order); }));
                    ++tally["emulated: warp groups"];
                }
                if (!found.empty()) return found;
                const auto of_tiles = portable_plan(s, "portable90", kH200);
                if (const auto& made = of_tiles) {
                    const emulated::Program program(next_name(), made->plan);
                    for (const int index : {0, 1})
                        if (found.empty())
                            add(faults_of(s.problem(index), made->how, 1,
                                          [&](const Call& call, unsigned order) { program.run(call, order); }));
                    ++tally["emulated: portable"];
                }
                if (found.empty()) add(faults_of_channels(s, tally));
                return found;
            }};
}

Engine emulated_channels_engine() { return {"emulated-channels", faults_of_channels}; }

Engine emulated_backward_engine(std::function<bool(std::uint64_t)> run) {
    return {"emulated backward", [run = std::move(run)](Subject& s, Tally& tally) -> std::vector<std::string> {
                constexpr double kOfTiles = 0.35;  // whose text CPUs run too
                if (!run(s.d.seed())) return {};
                const BackwardPlan made = backward_plan(s, "emulated_backward", tally);
                if (!made.plan.schedule.warp_groups() && !s.d.flip("emulated_backward.tiles", kOfTiles)) return {};
                const emulated::Program program(next_name(), made.plan);
                const BackwardProblem problem(made.program, make_problem(s.d, made.program, "b0", 64));
                ++tally[std::string("emulated: backward, ") + plan::to_string(made.plan.schedule.engine)];
                // Of tf32, whose 11 bits are those of f16: products of such matrices are of two parts.
                constexpr double kOfTf32 = 0x1p-11;
                const bool cuts = made.plan.schedule.warp_groups() && made.program.dtype == BF16;
                return problem.faults([&](check::Buffers& buffers) { program.run(buffers.call(), 1); },
                                      made.plan.schedule.chunk, tally, cuts ? kOfTf32 : BackwardProblem::kLastBits);
            }};
}

}  // namespace forge::fuzz
