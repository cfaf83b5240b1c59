// What calls by warp groups take, by the times of hopper/fitted.h. Schedules do not depend on it.
#include <algorithm>

#include "emit/cuda/launch.h"
#include "runtime/beside.h"
#include "support/divide.h"
#include "target/gpu_target.h"
#include "target/hopper/fitted.h"
#include "target/hopper/group_times.h"
#include "target/hopper/scan_times.h"
#include "target/simt/tile_times.h"
#include "tile/fragments.h"

namespace forge::target {
namespace {

constexpr double kMicro = 1e-6;

/// Tasks with roles, or that make transitions by columns. The table's other summaries are two to a multiprocessor.
/// Alone on a multiprocessor a task waits for itself; several share what it can issue.
void predict_scan(StageCost& k, const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem,
                  int multiprocessors) {
    const bool summaries = kernel.graph.loop == plan::Loop::Summaries,
               by_tiles = kernel.tiles.roles && kernel.tiles.roles->by_tiles;
    const double hop = kMicro * (kernel.has_tiles_apart() ? 1 : factor_of_sizes(kernel.tiles.fn)) *
                       (by_tiles ? microseconds_of_block(kernel) : microseconds_of_hop(plan, kernel, problem)),
                 passing = kernel.graph.loop == plan::Loop::Relay ? kMicro * microseconds_of_relay_task(kernel) : 0,
                 chain = static_cast<double>(k.hops) * hop + passing;
    const std::int64_t at_once = summaries && !kernel.graph.transition_columns ? 2 : 1,
                       each = support::divide_up(k.tasks, at_once * multiprocessors);
    if (each == 1) k.latency_seconds = chain;
    else k.arithmetic_seconds = static_cast<double>(each) * (summaries || by_tiles ? 1 : kH200Calls.crowded) * chain;
    k.seconds = std::max({k.memory_seconds, k.latency_seconds, k.arithmetic_seconds});
}

/// Of the work ahead, the groups that share a multiprocessor.
double at_once(const plan::Plan& plan, const plan::Kernel& kernel) {
    return plan.is_beside(kernel, plan::Loop::Chunks) ? plan.schedule.beside_groups
                                                      : static_cast<double>(tile::tasks_at_once(kernel.tiles));
}

/// Tasks of single chunks fill the GPU.
void predict_chunks(StageCost& k, const plan::Plan& plan, const plan::Kernel& kernel, int multiprocessors) {
    k.arithmetic_seconds = kMicro * microseconds_of_chunks(kernel, k.tasks, at_once(plan, kernel), multiprocessors);
    k.seconds = std::max({k.memory_seconds, k.matrix_seconds, k.arithmetic_seconds});
}

/// Scans whose tasks are one warp group each.
void predict_groups(StageCost& k, const plan::Plan& plan, const plan::Kernel& kernel, int multiprocessors) {
    const double scan = kMicro * microseconds_of_scan(plan, kernel, {k.tasks, k.hops}, multiprocessors);
    (k.tasks <= multiprocessors ? k.latency_seconds : k.arithmetic_seconds) = scan;
    k.seconds = std::max(k.memory_seconds, scan);
}

/// When a scan ends beside which its work ahead is done. Calls are placed without what their work ahead waits for.
double seconds_beside(const CallCost& cost, const plan::Plan& plan, const Problem& problem, int multiprocessors) {
    const std::int64_t tasks = cost.kernels[plan.kernels.size() - 2].tasks;
    const runtime::WorkBeside work{tasks, plan.schedule.beside_groups, plan.schedule.beside_steps};
    return kMicro * microseconds_beside(plan, work, factor_of_waits(plan.schedule.beside_groups),
                                        problem.sequences * problem.heads, multiprocessors);
}

/// What a scan adds that may run beside the one before it.
double seconds_added(const StageCost& before, const StageCost& k, int multiprocessors) {
    return before.tasks + k.tasks > multiprocessors
               ? k.seconds
               : added_beside(before.seconds, k.seconds, before.memory_seconds + k.memory_seconds);
}

}  // namespace

void predict_warp_groups(CallCost& cost, const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu) {
    cost.seconds = 0;
    for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
        const plan::Kernel& kernel = plan.kernels[i];
        StageCost& k = cost.kernels[i];
        if (kernel.engine == plan::Engine::Tiles) predict_tiles_kernel(k, kernel, plan.schedule, gpu);
        else if (kernel.graph.loop == plan::Loop::Chunks) predict_chunks(k, plan, kernel, gpu.multiprocessors);
        else {
            const Extent e = extent_of_scan(plan, kernel, problem);
            k.tasks = e.tasks, k.hops = e.hops;
            const bool roles = kernel.tiles.roles && !plan.schedule.producer;
            if (roles || kernel.graph.transition_columns) predict_scan(k, plan, kernel, problem, gpu.multiprocessors);
            else predict_groups(k, plan, kernel, gpu.multiprocessors);
        }
        cost.seconds += emit::runs_beside_kernel_before(plan, kernel)
                            ? seconds_added(cost.kernels[i - 1], k, gpu.multiprocessors)
                            : k.seconds;
    }
    if (cost.beside) {
        cost.seconds -= cost.kernels.back().seconds + cost.kernels[cost.kernels.size() - 2].seconds;
        cost.seconds = std::max(cost.seconds + seconds_beside(cost, plan, problem, gpu.multiprocessors),
                                cost.bytes / (kH200.bytes_per_microsecond / kMicro));
    }
    if (plan.schedule.summaries > 0) cost.seconds += kMicro * kH200.join;
    cost.seconds += kMicro * kH200Calls.start;
    cost.basis = plan.schedule.engine == plan::Engine::Warps
                     ? "times of warps' operations, measured on an NVIDIA H200"
                     : "times of warp groups' operations, measured on an NVIDIA H200";
}

}  // namespace forge::target
