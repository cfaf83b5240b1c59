#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"

namespace forge::plan {

using Kind = TensorSlot::Kind;

int Plan::tensor(Kind kind, const std::string& name) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (tensors[i].kind == kind && tensors[i].name == name) return static_cast<int>(i);
    throw InternalError(fmt::format("plan: no tensor '{}'", name));
}

int Plan::scalar(const std::string& name) const {
    for (std::size_t i = 0; i < scalars.size(); ++i)
        if (scalars[i] == name) return static_cast<int>(i);
    throw InternalError(fmt::format("plan: no scalar '{}'", name));
}

const LateState* Plan::late_state(int final) const {
    const auto it = std::find_if(late_states.begin(), late_states.end(),
                                 [&](const LateState& state) { return state.final == final; });
    return it == late_states.end() ? nullptr : &*it;
}

const Kernel& Plan::scan() const {
    const auto last =
        std::find_if(kernels.rbegin(), kernels.rend(), [](const Kernel& k) { return in_order(k.graph.loop); });
    return last == kernels.rend() ? kernels.back() : *last;
}

bool Plan::is_shared(const Kernel& kernel, const ir::Type& type) const {
    return kernel.cut.count > 1 && std::none_of(type.shape.begin(), type.shape.end(),
                                                [&](const Dim& d) { return d.symbol == kernel.cut.axis; });
}

bool Plan::in_stretches() const {
    const bool back = std::any_of(kernels.begin(), kernels.end(), [](const Kernel& k) { return k.graph.reverse; });
    return schedule.stretch_bytes > 0 && schedule.strategy != Strategy::Segmented && kernels.size() > 1 && !back;
}

std::int64_t Plan::stretch_chunks(std::int64_t lanes) const {
    std::int64_t bytes = 0;
    for (const SpillSlot& slot : spills)
        if (slot.per == SpillSlot::Per::Chunk) bytes += slot.floats * static_cast<std::int64_t>(sizeof(float));
    return runtime::stretch_chunks(schedule.stretch_bytes, bytes, lanes);
}

int Plan::spill(const std::string& name) const {
    for (std::size_t i = 0; i < spills.size(); ++i)
        if (spills[i].name == name) return static_cast<int>(i);
    throw InternalError(fmt::format("plan: no spill '{}'", name));
}

bool Plan::has_spill(const std::string& name) const {
    return std::any_of(spills.begin(), spills.end(), [&](const SpillSlot& slot) { return slot.name == name; });
}

}  // namespace forge::plan
