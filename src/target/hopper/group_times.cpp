#include "target/hopper/group_times.h"

#include <algorithm>
#include <optional>

#include "emit/cuda/launch.h"
#include "support/divide.h"
#include "target/gpu_cost.h"
#include "target/hopper/fitted.h"
#include "target/hopper/scan_times.h"
#include "tile/fragments.h"
#include "tile/order.h"
#include "tile/text.h"

namespace forge::target {
namespace {

using ir::Opcode;
using tile::kBlock;

/// A chunk of a scan that has its multiprocessor to itself, and so waits for itself; or what a role computes of it.
double microseconds_alone(const tile::TileKernel& kernel, const ScanTimes& times,
                          std::optional<std::uint8_t> role = std::nullopt) {
    const ir::Function& fn = kernel.fn;
    const auto is_ahead = [&](ir::ValueId v) {
        return std::find(kernel.vectors.begin(), kernel.vectors.end(), v) != kernel.vectors.end();
    };
    double sum = 0;
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        if (op.args.empty() || ir::is_view(op.code) || (role && !kernel.roles->does(*role, v))) continue;
        if (ir::is_matmul(op.code)) sum += times.alone_product + times.alone_block * further_blocks(fn, op);
        if (op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply) sum += times.alone_decays;
        if (op.layout->space == ir::Layout::Space::Tile) sum += times.alone_floats * blocks_of(op.type);
        if (!ir::is_elementwise(op.code)) continue;
        sum += times.alone_matrix * blocks_of(op.type);
        if (!tile::costly(op.code)) continue;
        sum += (is_ahead(v) ? times.alone_ahead : times.alone_vector) + times.alone_function * blocks_of(op.type);
    }
    for (const ir::Result& r : fn.results)
        if (r.role == ir::Role::Spill && tile::is_block_matrix(fn.op(r.value).type))
            sum += times.alone_stored * blocks_of(fn.op(r.value).type);
    const auto registers = static_cast<double>(tile::fragment_registers(fn));
    return sum + times.alone_spilled * std::max(0.0, registers - times.registers);
}

bool has_work_ahead(const plan::Plan& plan) {
    return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                       [](const plan::Kernel& k) { return k.graph.loop == plan::Loop::Chunks; });
}

/// As microseconds_of_chunk, of the values that this scan reads: a backward pass has several scans.
double microseconds_of_products(const ir::Function& scan) {
    double sum = 0;
    for (const ir::Op& op : scan.ops) sum += ir::is_matmul(op.code) ? kH200.beside_product : 0;
    return sum;
}
double microseconds_of_spills(const plan::Plan& plan, const plan::Kernel& kernel) {
    double sum = 0;
    for (const ir::Op& op : kernel.graph.fn.ops) {
        if (op.code != ir::Opcode::Param || op.attrs.role != ir::Role::Spill) continue;
        const auto spill = static_cast<std::size_t>(plan.spill(op.attrs.name));
        sum += kH200.beside_kilobyte * static_cast<double>(plan.spills[spill].floats) * sizeof(float) / 1024;
    }
    return sum;
}

}  // namespace

double factor_of_waits(double tasks_at_once) { return 1 + kH200.waits * (kFull / std::min(tasks_at_once, kFull) - 1); }

namespace {

/// What a task waits for its instructions: for all, if there are more than the multiprocessor keeps by some.
double microseconds_of_text(const tile::TileKernel& kernel) {
    constexpr double kSome = 0.15;
    const auto bytes = static_cast<double>(tile::text_bytes(kernel)), kept = static_cast<double>(tile::kKeptText);
    return kH200.kilobyte_of_text * bytes / 1024 * std::clamp((bytes / kept - 1) / kSome, 0.0, 1.0);
}

}  // namespace

double microseconds_of_chunks(const plan::Kernel& kernel, std::int64_t tasks, double tasks_at_once,
                              int multiprocessors) {
    const ir::Function& fn = kernel.tiles.fn;
    return (factor_of_waits(tasks_at_once) * microseconds_ahead(fn, factor_of_sizes(fn)) +
            microseconds_of_text(kernel.tiles) / tasks_at_once) *
           static_cast<double>(tasks) / multiprocessors;
}

Extent extent_of_scan(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem) {
    Extent e = extent(plan, kernel, problem);
    if (const std::int64_t parts = plan.schedule.summaries; kernel.graph.loop == plan::Loop::Summaries && parts > 1)
        e.tasks *= parts, e.hops = support::divide_up(e.hops, parts);
    return e;
}

double microseconds_of_scan(const plan::Plan& plan, const plan::Kernel& kernel, const Extent& extent,
                            int multiprocessors) {
    const bool paired = plan.is_paired(kernel);
    const std::int64_t most = paired               ? 2
                              : kernel.tiles.roles ? 1
                                                   : tile::tasks_at_once(kernel.tiles),
                       at_once = std::clamp<std::int64_t>(support::divide_up(extent.tasks, multiprocessors), 1, most),
                       rounds = support::divide_up(extent.tasks, at_once * multiprocessors);
    const auto sharing = static_cast<double>(at_once);
    const ScanTimes& times = kernel.engine == plan::Engine::Warps ? kH200Warps : kH200;
    const double crowded = sharing * factor_of_waits(sharing) / factor_of_waits(1);
    const double chunk = kernel.tiles.by_element ? kH200.by_element
                         : kernel.graph.apart    ? kH200.early
                                                 : microseconds_alone(kernel.tiles, times) +
                                                    (plan.schedule.all_late && at_once == 1 ? times.alone_late : 0);
    return static_cast<double>(rounds * extent.hops) * crowded * chunk * (paired ? kH200.paired : 1);
}

double microseconds_of_roles(const tile::TileKernel& kernel) {
    if (!kernel.roles || kernel.roles->by_tiles || kernel.roles->takers == 0) return 0;
    const double gives = microseconds_alone(kernel, kH200, tile::Roles::kGives),
                 takes = microseconds_alone(kernel, kH200, tile::Roles::kTakes);
    return kH200.role * std::max(gives, takes / kernel.roles->takers);
}

double microseconds_of_hop(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem) {
    if (kernel.graph.loop == plan::Loop::Summaries)
        return kernel.graph.transition_columns ? kH200.matrix_summary_chunk : kH200.summary_chunk;
    if (has_work_ahead(plan))
        return std::max(microseconds_of_products(kernel.tiles.fn) + microseconds_of_spills(plan, kernel),
                        microseconds_of_roles(kernel.tiles));
    FitWishes wishes;
    wishes.expected_tokens = problem.tokens, wishes.expected_tasks = problem.sequences * problem.heads;
    return segment_times(plan.definition, kernel.graph.fn, problem.sizes, plan.schedule.held(problem.sizes), wishes)
        .chunk;
}

double added_beside(double before, double scan, double memory) { return std::max({before, scan, memory}) - before; }

double microseconds_of_groups(const plan::Plan& plan, const Problem& problem, const SharedMemory& gpu) {
    const double bandwidth = gpu.bytes_per_microsecond > 0 ? gpu.bytes_per_microsecond : kH200.bytes_per_microsecond;
    double sum = 0, before = 0, memory_before = 0;
    std::int64_t tasks_before = 0;
    for (const plan::Kernel& kernel : plan.kernels) {
        const bool chunks = kernel.graph.loop == plan::Loop::Chunks;
        const std::int64_t tasks = extent(plan, kernel, problem).tasks;
        const double memory = bytes_of_hops(plan, kernel, problem) / bandwidth;
        double work = kH200.kernel;  // of the portable library: one that joins segments
        if (plan::has_fragments(kernel.engine) && chunks)
            work = microseconds_of_chunks(kernel, tasks, static_cast<double>(tile::tasks_at_once(kernel.tiles)),
                                          gpu.multiprocessors);
        else if (plan::has_fragments(kernel.engine) && kernel.tiles.roles && kernel.tiles.roles->takers > 0)
            work = (kernel.has_tiles_apart() ? 1 : factor_of_sizes(kernel.tiles.fn)) *
                   microseconds_of_hop(plan, kernel, problem) *
                   static_cast<double>(extent(plan, kernel, problem).hops *
                                       support::divide_up(tasks, gpu.multiprocessors));
        else if (plan::has_fragments(kernel.engine))
            work = microseconds_of_scan(plan, kernel, extent_of_scan(plan, kernel, problem), gpu.multiprocessors);
        work = std::max(work, memory);
        const bool beside =
            emit::runs_beside_kernel_before(plan, kernel) && tasks_before + tasks <= gpu.multiprocessors;
        sum += beside ? added_beside(before, work, memory_before + memory) : work;
        if (&kernel == &plan.kernels.back() && plan.schedule.beside_groups > 0) {
            const runtime::WorkBeside ahead{tasks_before, plan.schedule.beside_groups, plan.schedule.beside_steps};
            const double both =
                microseconds_beside(plan, ahead, 1, problem.sequences * problem.heads, gpu.multiprocessors);
            sum += std::max(both, memory_before + memory) - before - work;
        }
        before = work, memory_before = memory, tasks_before = tasks;
    }
    return sum;
}

}  // namespace forge::target
