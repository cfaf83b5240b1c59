#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "forge/error.h"
#include "graph/transition.h"

namespace forge::plan {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Role;
using Kind = TensorSlot::Kind;

std::vector<TensorSlot> tensor_slots(const ir::Definition& def) {
    std::vector<TensorSlot> slots;
    for (const auto& in : def.inputs) {
        if (in.role == Role::Input) slots.push_back({Kind::Input, in.name, in.type, in.pad});
        if (in.role == Role::Head) slots.push_back({Kind::Head, in.name, in.type, 0});
    }
    for (const auto& out : def.outputs) slots.push_back({Kind::Output, out.name, out.type, 0});
    for (const auto& s : def.states) slots.push_back({Kind::InitialState, s.name, s.type, 0});
    for (const auto& s : def.states) slots.push_back({Kind::FinalState, s.name, s.type, 0});
    return slots;
}

double product_flops(const ir::Function& fn, const Op& op) {
    const ir::Type& a = fn.op(op.args[0]).type;
    const auto m = static_cast<double>(tile::size_of(op.type, 0)), n = static_cast<double>(tile::size_of(op.type, 1)),
               k = static_cast<double>(tile::size_of(a, op.attrs.trans_a ? 0 : 1));
    const double all = 2 * m * n * k;
    return op.attrs.tri == ir::Tri::None ? all : all / 2;
}

}  // namespace

std::string to_string(const Schedule& s) {
    std::string text = fmt::format("strategy {}, chunk {}", to_string(s.strategy), s.chunk);
    if (s.strategy == Strategy::Segmented) text += fmt::format(", up to {} segments per sequence", s.segments);
    if (s.tiles > 1) text += fmt::format(", {} in {} tiles of {}", s.tile_axis, s.tiles, s.tile_size);
    return text + fmt::format(", vectors of {} floats{}{}", s.vector_width, s.reason.empty() ? "" : ": ", s.reason);
}

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

int Plan::spill(const std::string& name) const {
    for (std::size_t i = 0; i < spills.size(); ++i)
        if (spills[i].name == name) return static_cast<int>(i);
    throw InternalError(fmt::format("plan: no spill '{}'", name));
}

namespace {

/// Where a kernel's result goes in the workspace: its name there, and whether per segment. Outputs and the states of a
/// scan over a whole sequence go to the caller instead.
std::optional<SpillSlot> spill_of(const KernelGraph& kernel, const ir::Result& r) {
    SpillSlot slot;
    slot.type = kernel.fn.op(r.value).type;
    slot.per_segment = kernel.loop == Loop::Summaries || kernel.loop == Loop::Carries;
    if (r.role == Role::Spill) slot.name = r.name;
    else if (kernel.loop == Loop::Summaries) slot.name = r.role == Role::State ? graph::input_spill(r.name) : graph::transition_spill(r.name);
    else return std::nullopt;
    return slot;
}

bool has_axis(const ir::Function& fn, const std::string& symbol) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [&](const Op& op) {
        return std::any_of(op.type.shape.begin(), op.type.shape.end(), [&](const Dim& d) { return d.symbol == symbol; });
    });
}

}  // namespace

Plan make_plan(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes, const Schedule& schedule) {
    Plan plan{definition, program, schedule, sizes, {}, tensor_slots(definition), {}, {}};
    for (const auto& in : definition.inputs)
        if (in.role == Role::Scalar) plan.scalars.push_back(in.name);
    tile::Sizes whole = sizes, part = sizes;
    whole[ir::kChunkSymbol] = part[ir::kChunkSymbol] = schedule.chunk;
    const bool tiled = schedule.tiles > 1;
    if (tiled) part[schedule.tile_axis] = schedule.tile_size;
    for (KernelGraph& graph : place(program, schedule.strategy, tiled ? schedule.tile_axis : "")) {
        graph.tiled = tiled && (graph.tiled || (schedule.tile_chunks && has_axis(graph.fn, schedule.tile_axis)));
        for (const ir::Result& r : graph.fn.results)
            if (auto slot = spill_of(graph, r)) {
                const ir::Type type = tile::with_sizes(slot->type, whole);
                slot->strides = tile::tile_strides(type, schedule.rules());
                slot->floats = tile::tile_floats(type, schedule.rules());
                plan.spills.push_back(std::move(*slot));
            }
        tile::TileKernel tiles = tile::lower(graph.fn, graph.tiled ? part : whole, whole, schedule.rules());
        plan.kernels.push_back({std::move(graph), std::move(tiles)});
    }
    return plan;
}

double useful_flops(const ir::Function& fn) {
    double flops = 0;
    for (const Op& op : fn.ops) {
        if (ir::is_matmul(op.code)) flops += product_flops(fn, op);
        const double n = op.type.rank() == 2 ? static_cast<double>(tile::size_of(op.type, 0)) : 0;
        if (op.code == Opcode::Inverse) flops += n * n * n / 3;
        if (op.code == Opcode::DecayApply) flops += n * n * static_cast<double>(tile::size_of(op.type, 1));
        if (op.code == Opcode::DecayMatmul) flops += n * n * static_cast<double>(tile::size_of(fn.op(op.args[0]).type, 1));
    }
    return flops;
}

}  // namespace forge::plan
