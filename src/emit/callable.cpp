#include "emit/callable.h"

#include <algorithm>

#include "emit/cuda/launch.h"
#include "emit/kernel.h"
#include "emit/last_rows.h"
#include "ir/definition.h"

namespace forge::emit {
namespace {

using plan::TensorSlot;
using runtime::Axis;

/// The axes of a plan's tensors in numbers. Axes of heads are those that stand where an input or an output has heads.
class Axes {
  public:
    explicit Axes(const plan::Plan& plan) : plan_(plan) {
        for (const TensorSlot& slot : plan.tensors) {
            if (is_state(slot)) continue;
            const Dim& head = slot.type.shape[slot.kind == TensorSlot::Kind::Head ? 0 : 1];
            if (!head.is_constant() && number_of(head.symbol) == heads()) heads_.push_back(head.symbol);
        }
    }
    [[nodiscard]] int heads() const { return static_cast<int>(heads_.size()); }

    [[nodiscard]] Axis axis(const Dim& d) const {
        if (d.is_constant()) return {Axis::Of::Number, d.factor};
        if (d.symbol == ir::kTokenSymbol) return {Axis::Of::Tokens, d.factor};
        if (const int n = number_of(d.symbol); n < heads()) return {Axis::Of::Heads, 1, n};
        return {Axis::Of::Number, d.factor * plan_.sizes.at(d.symbol)};
    }

    static bool is_state(const TensorSlot& slot) {
        using Kind = TensorSlot::Kind;
        return slot.kind != Kind::Input && slot.kind != Kind::Head && slot.kind != Kind::Output;
    }

  private:
    /// heads() if there is no such axis.
    [[nodiscard]] int number_of(const std::string& symbol) const {
        return static_cast<int>(std::find(heads_.begin(), heads_.end(), symbol) - heads_.begin());
    }
    const plan::Plan& plan_;
    std::vector<std::string> heads_;
};

}  // namespace

runtime::Callable callable_of(const plan::Plan& plan) {
    const Axes axes(plan);
    runtime::Callable made;
    made.name = plan.definition.name;
    for (const TensorSlot& slot : plan.tensors) {
        runtime::TensorOfCall tensor{slot.kind, slot.name, slot.type.dtype, slot.type.shape, {}};
        if (Axes::is_state(slot))
            tensor.dtype = slot.heads || slot.kind == TensorSlot::Kind::ChunkState ? F32 : plan.state_dtype;
        for (const Dim& d : slot.type.shape) tensor.axes.push_back(axes.axis(d));
        if (slot.heads) tensor.heads = axes.axis(*slot.heads);
        tensor.given = slot.given, tensor.inner = slot.inner;
        made.tensors.push_back(std::move(tensor));
    }
    made.scalars = plan.scalars;
    for (const plan::SpillSlot& spill : plan.spills) made.spills.push_back({spill.floats, spill.per});
    for (const plan::Kernel& kernel : plan.kernels)
        made.kernels.push_back({kernel_symbol(kernel), kernel.graph.loop, kernel.parts(), kernel.tiles.scratch_floats,
                                plan.schedule.shared_memory ? launch_of(plan, kernel) : Launch()});
    made.last_rows = plan.last_rows;
    for (const plan::LateState& state : plan.late_states)
        made.last_rows.push_back({state.initial, state.initial, state.final, true});
    if (plan.has_end()) made.last_rows_symbol = last_rows_symbol(plan);
    made.heads = axes.heads();
    made.chunk = plan.schedule.chunk, made.segments = plan.schedule.segments;
    made.relay_lanes = plan.schedule.relay_lanes;
    made.summaries = plan.schedule.summaries, made.tiles = plan.schedule.tiles;
    made.in_stretches = plan.in_stretches(), made.stretch_bytes = plan.schedule.stretch_bytes;
    made.block_threads = plan.schedule.block_threads;
    made.beside_groups = plan.schedule.beside_groups, made.beside_steps = plan.schedule.beside_steps;
    made.clears_skipped = plan.schedule.holds_states;
    return made;
}

}  // namespace forge::emit
