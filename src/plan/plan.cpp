#include "plan/plan.h"

#include <fmt/format.h>

#include "forge/error.h"

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

Plan make_plan(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes, const Schedule& schedule) {
    Plan plan{definition, program, schedule, sizes, place(program, schedule.strategy), {}, tensor_slots(definition), {}, {}};
    for (const auto& in : definition.inputs)
        if (in.role == Role::Scalar) plan.scalars.push_back(in.name);
    tile::Sizes tile_sizes = sizes;
    tile_sizes[ir::kChunkSymbol] = schedule.chunk;
    if (!schedule.tile_axis.empty()) tile_sizes[schedule.tile_axis] = schedule.tile_size;
    for (const KernelGraph& graph : plan.graphs) {
        plan.kernels.push_back(tile::lower(graph, tile_sizes, schedule.vector_width));
        const ir::Function& fn = plan.kernels.back().fn;
        for (const ir::Result& r : fn.results)
            if (r.role == Role::Spill) plan.spills.push_back({r.name, tile::tile_floats(fn.op(r.value).type, schedule.vector_width)});
    }
    return plan;
}

double useful_flops(const ir::Function& fn) {
    double flops = 0;
    for (const Op& op : fn.ops) {
        if (ir::is_matmul(op.code)) flops += product_flops(fn, op);
        const double n = op.type.rank() == 2 ? static_cast<double>(tile::size_of(op.type, 0)) : 0;
        if (op.code == Opcode::Inverse) flops += n * n * n / 3;
        if (op.code == Opcode::DecayMatmul) flops += n * n * static_cast<double>(tile::size_of(fn.op(op.args[0]).type, 1));
    }
    return flops;
}

}  // namespace forge::plan
