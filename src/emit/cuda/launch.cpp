#include "emit/cuda/launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/portable/call.h"
#include "emit/coming.h"
#include "emit/cuda/carries.h"
#include "emit/cuda/channels.h"
#include "forge/error.h"
#include "tile/fragments.h"

namespace forge::emit {
namespace {

Launch launch_of_tiles(const plan::Plan& plan, const plan::Kernel& kernel) {
    Launch launch;
    launch.threads = plan.schedule.block_threads * (kernel.tiles.roles ? kernel.tiles.roles->groups() : 1);
    launch.shared_bytes = (floats_of_tiles(kernel) + coming_floats(plan)) * static_cast<std::int64_t>(sizeof(float));
    if (plan.schedule.states_ahead) launch.resident_blocks = plan.schedule.resident_blocks;
    launch.parts = kernel.parts();
    if (kernel.tiles.far_floats > 0) launch.most_blocks = plan.schedule.far_blocks;
    if (plan.is_beside(kernel, plan::Loop::Chunks)) {
        launch.beside = true;
        launch.threads = plan.schedule.block_threads * plan.schedule.beside_groups;
        launch.shared_bytes =
            kernel.aligned_floats() * plan.schedule.beside_groups * static_cast<std::int64_t>(sizeof(float));
    }
    if (kernel.graph.loop == plan::Loop::Relay) {
        launch.exchange_header_bytes = cuda::kRelayHeader;
        launch.exchange_bytes = static_cast<std::int64_t>(sizeof(unsigned)) * kernel.tiles.roles->tiles();
    }
    if (carries_columns(plan, kernel))
        launch.shared_bytes = carry_floats(plan, kernel) * static_cast<std::int64_t>(sizeof(float));
    launch.waits = waits_for_kernel_before(plan, kernel), launch.waits_late = runs_beside_kernel_before(plan, kernel);
    launch.early = starts_early(plan, kernel);
    launch.maps = mapped_tensors(plan, kernel);
    return launch;
}

}  // namespace

bool waits_for_kernel_before(const plan::Plan& plan, const plan::Kernel& kernel) {
    return plan.schedule.has_fragments() && &kernel != &plan.kernels.front();
}

bool starts_early(const plan::Plan& plan, const plan::Kernel& kernel) {
    return plan.schedule.holds_states && &kernel == &plan.kernels.front();
}

bool runs_beside_kernel_before(const plan::Plan& plan, const plan::Kernel& kernel) {
    const auto alone = [&](const plan::Kernel& k) {
        const bool one = !k.tiles.roles || plan.schedule.producer;  // group that computes
        return plan::has_fragments(k.engine) && k.graph.loop == plan::Loop::Scan && one && k.tiles.far_floats == 0;
    };
    if (!waits_for_kernel_before(plan, kernel) || !alone(kernel)) return false;
    const plan::Kernel& before = *(&kernel - 1);
    if (!alone(before) || runs_beside_kernel_before(plan, before)) return false;
    return std::none_of(kernel.graph.fn.ops.begin(), kernel.graph.fn.ops.end(), [&](const ir::Op& op) {
        return op.code == ir::Opcode::Param && op.attrs.role == ir::Role::Spill &&
               std::any_of(before.graph.fn.results.begin(), before.graph.fn.results.end(),
                           [&](const ir::Result& r) { return r.role == ir::Role::Spill && r.name == op.attrs.name; });
    });
}

bool has_kernel_beside(const plan::Plan& plan, const plan::Kernel& kernel) {
    return &kernel != &plan.kernels.back() && runs_beside_kernel_before(plan, *(&kernel + 1));
}

std::string define_of_call(const plan::Plan& plan) { return fmt::format("FORGE_TENSORS {}", plan.tensors.size()); }

bool has_arrivals(const plan::Plan& plan, const plan::Kernel& kernel) {
    constexpr std::int64_t kFew = 3;  // tasks; what one begins with costs more than what is left of its copies' waits
    return kernel.engine == plan::Engine::WarpGroups && kernel.tiles.arrivals >= 0 && kernel.tiles.far_floats == 0 &&
           !plan.is_beside(kernel, plan::Loop::Chunks) && tile::tasks_at_once(kernel.tiles) <= kFew;
}

bool takes_maps(const plan::Plan& plan, const plan::Kernel& kernel) {
    return kernel.tiles.roles || has_arrivals(plan, kernel);
}

std::vector<int> mapped_tensors(const plan::Plan& plan, const plan::Kernel& kernel) {
    std::vector<int> tensors;
    if (!takes_maps(plan, kernel)) return tensors;
    const ir::Function& fn = kernel.tiles.fn;
    const auto add = [&](ir::ValueId v, plan::TensorSlot::Kind kind, const std::string& name) {
        const int tensor = plan.tensor(kind, name);
        const bool known = std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
        if (!known && fn.op(v).layout->space == ir::Layout::Space::Operand && tensors.size() < cuda::kMaxMaps)
            tensors.push_back(tensor);
    };
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        const bool tokens =
            op.attrs.role == ir::Role::Input || (op.attrs.role == ir::Role::Shifted && kernel.tiles.roles);
        if (op.code == ir::Opcode::Param && tokens) add(v, plan::TensorSlot::Kind::Input, op.attrs.name);
    }
    for (const ir::Result& r : fn.results)
        if (r.role == ir::Role::Input) add(r.value, plan::TensorSlot::Kind::Output, r.name);
    return tensors;
}

Launch launch_of(const plan::Plan& plan, const plan::Kernel& kernel) {
    switch (kernel.engine) {
        case plan::Engine::Tiles:
        case plan::Engine::WarpGroups:
        case plan::Engine::Warps:
            return launch_of_tiles(plan, kernel);
        case plan::Engine::Channels:
            return launch_of_channels(plan, kernel);
    }
    throw InternalError("launch: unknown engine");
}

}  // namespace forge::emit
