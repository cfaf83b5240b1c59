#include "emit/cuda/emit_cuda.h"

#include <algorithm>

#include "emit/cuda/carries.h"
#include "emit/cuda/channels.h"
#include "emit/cuda/fragment_kernel.h"
#include "emit/cuda/launch.h"
#include "emit/last_rows.h"
#include "forge/error.h"
#include "kernel/hazards.h"
#include "kernel/synchronise.h"
#include "tile/held.h"

namespace forge::emit {

namespace {

Source channels_source(const plan::Plan& plan) {
    Writer out;
    write_title(out, plan);
    write_channel_head(out, plan);
    for (const plan::Kernel& kernel : plan.kernels) {
        write_title(out, kernel);
        write_channel_kernel(out, plan, kernel);
    }
    Dialect cuda;
    cuda.arguments = "const __grid_constant__ Call call";
    cuda.prologue = {"const Size task = blockIdx.x;"};
    write_last_rows(out, cuda, plan);
    return out.source();
}

void synchronise(Source& source) {
    std::size_t n = 0;
    for (kernel::Statement& s : source.statements) {
        if (s.kind != kernel::Kind::Kernel) continue;
        kernel::Kernel kernel = source.kernels.at(n++);
        kernel.body = std::move(s.body);
        kernel::synchronise(kernel);
        s.body = std::move(kernel.body);
    }
}

/// Of a block.
int groups_of(const plan::Plan& plan, const plan::Kernel& kernel) {
    return launch_of(plan, kernel).threads / plan.schedule.block_threads;
}
int most_groups(const plan::Plan& plan) {
    int most = 1;
    for (const plan::Kernel& kernel : plan.kernels) most = std::max(most, groups_of(plan, kernel));
    return most;
}

Source tiles_source(const plan::Plan& plan) {
    Dialect cuda;
    cuda.defines = {define_of_call(plan), fmt::format("FORGE_THREADS {}", plan.schedule.block_threads)};
    const bool fragments = plan.schedule.has_fragments();
    cuda.includes = {fragments ? "cuda/warpgroup/kernel.h" : "cuda/portable/kernel.h"};
    if (fragments) cuda.defines.emplace_back("FORGE_FAST_EXP"), cuda.publishes = true;
    if (plan.schedule.engine == plan::Engine::Warps) cuda.defines.emplace_back("FORGE_WARPS");
    if (plan.schedule.operand_parts > 1) cuda.defines.emplace_back("FORGE_FLOAT_OPERANDS");
    if (const int groups = most_groups(plan); groups > 1)
        cuda.defines.emplace_back(fmt::format("FORGE_GROUPS {}", groups));
    if (plan.schedule.holds_states)
        cuda.defines.push_back(fmt::format("FORGE_RESIDENT {}", plan.schedule.resident_blocks));
    if (plan.schedule.holds_states) cuda.includes.emplace_back("cuda/portable/held.h");
    if (plan.has_end()) cuda.includes.emplace_back("cuda/portable/last_rows.h");
    cuda.namespaces = {"forge::cuda"};
    cuda.arguments = "const __grid_constant__ Call call";
    cuda.prologue = {fmt::format("extern __shared__ __align__({}) float scratch[];", fragments ? 1024 : 16),
                     "const Size task = blockIdx.x;"};
    cuda.idle = "if (at.idle) return;";
    cuda.cooperative = true;
    cuda.threads = plan.schedule.block_threads;
    return write_source(
        plan, cuda, [](Writer& out, const Dialect& dialect, const plan::Plan& p, const plan::Kernel& kernel) {
            Dialect own = dialect;
            if (kernel.tiles.far_floats > 0 || p.schedule.states_ahead)
                own.prologue.pop_back();  // it has several tasks
            if (kernel.graph.loop == plan::Loop::Relay)
                own.prologue.back() = "const Size task = next_of_relay(call, scratch);";
            if (p.is_beside(kernel, plan::Loop::Chunks)) own.prologue.clear();
            else if (p.schedule.has_fragments() && &kernel != &p.kernels.back() && !has_kernel_beside(p, kernel))
                own.prologue.emplace_back("ptx::let_next_kernel_start();");
            if (groups_of(p, kernel) == 1 && most_groups(p) > 1) own.prologue.emplace_back("only_group();");
            if (starts_early(p, kernel)) {
                if (!p.schedule.states_ahead) own.prologue.emplace_back("ptx::let_next_kernel_start();");
                own.early = true;
            }
            if (waits_for_kernel_before(p, kernel) && !plan::has_fragments(kernel.engine)) own.overlaps = true;
            (plan::has_fragments(kernel.engine) ? write_fragment_kernel
             : carries_columns(p, kernel)       ? write_carries
                                                : write_kernel)(out, own, p, kernel);
        });
}

}  // namespace

std::string emit_cuda(const plan::Plan& plan) { return print(cuda_source(plan)); }

Source cuda_source(const plan::Plan& plan) {
    if (!plan.schedule.shared_memory) throw InternalError("emit: the plan's tiles are not laid out for shared memory");
    const bool channels = plan.schedule.engine == plan::Engine::Channels;
    Source source = channels ? channels_source(plan) : tiles_source(plan);
    if (!channels) synchronise(source);
#ifndef NDEBUG
    for (const kernel::Kernel& kernel : kernels_of(source)) kernel::verify(kernel);
#endif
    return source;
}

}  // namespace forge::emit
