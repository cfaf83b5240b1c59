#include "emit/context.h"

#include <algorithm>

namespace forge::emit {

ir::ValueId Context::carried_param(const ir::Result& r) const {
    for (ir::ValueId v = 0; v < fn.size(); ++v)
        if (is_param(v, r.role) && fn.op(v).attrs.name == r.name && fn.op(v).attrs.at == r.at) return v;
    return ir::kNoValue;
}

kernel::Accesses Context::floats_at(std::int64_t offset, std::int64_t floats) {
    return {{kernel::Memory::Shared, kScratch, offset * kFloat, (offset + floats) * kFloat}};
}

bool Context::sums_held(ir::ValueId v) const {
    const ir::Op& op = fn.op(v);
    const bool sums = ir::is_matmul(op.code) || ir::along(op.code) == ir::Along::Reduced;
    return sums && !is_held(v) &&
           std::any_of(op.args.begin(), op.args.end(), [&](ir::ValueId a) { return is_held(tile::buffer_of(fn, a)); });
}

kernel::Accesses Context::parts_of_warps() { return {{kernel::Memory::Shared, "parts of warps", 0, kFloat}}; }

kernel::Accesses Context::memory(ir::ValueId v) const {
    const ir::ValueId base = tile::buffer_of(fn, v);
    if (is_held(base)) return {kernel::registers(name(base))};
    if (!in_tile(base) && !is_operand(base)) return {};
    const ir::Layout& layout = *fn.op(base).layout;
    const tile::TileKernel& tiles = kernel.tiles;
    kernel::Accesses all = floats_at(layout.offset, floats(base));
    kernel::Access& at = all[0];
    const auto move_to = [&](std::int64_t offset, std::int64_t stride, int depth, const std::string& channel) {
        at.end += offset * kFloat - at.begin, at.begin = offset * kFloat;
        at.stride = stride * kFloat, at.depth = depth, at.channel = channel;
    };
    const tile::Roles* const roles = tiles.roles ? &*tiles.roles : nullptr;
    if (layout.staged && plan::in_order(kernel.graph.loop)) {
        const bool number = layout.offset >= tiles.stage_floats;
        move_to(number ? tiles.stage_numbers + layout.offset - tiles.stage_floats : layout.offset,
                number ? tiles.number_floats : tiles.stage_floats, tiles.stages, roles ? kStages : "");
        if (roles && roles->beside(base) > 1) at.of_instance = at.end - at.begin;
    } else if (roles) {
        if (const tile::Roles::Passed* const p = roles->find(base))
            move_to(p->offset, p->floats, roles->buffers, passing(base));
        else if (fn.op(base).code != ir::Opcode::Param && !roles->does(tile::Roles::kGives, base))
            at.of_instance = roles->taker_floats * kFloat;
    }
    return all;
}

bool Context::needs_float(ir::ValueId v) const {
    const auto& inputs = plan.definition.inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [](const ir::InputDecl& in) { return in.type.dtype == BF16; }))
        return true;
    std::vector<ir::ValueId> inverted;
    for (ir::ValueId i = 0; i < fn.size(); ++i)
        if (fn.op(i).code == ir::Opcode::Inverse) inverted.push_back(i);
    return ir::needed_for(fn, inverted)[static_cast<std::size_t>(v)];
}

bool Context::needs_exactness(ir::ValueId v) const {
    const auto is_step = [](const ir::Op& op) {
        return op.type.dtype == DType::Bool || op.code == ir::Opcode::Floor || op.code == ir::Opcode::Ceil ||
               op.code == ir::Opcode::Round || op.code == ir::Opcode::Sign;
    };
    const auto is_rounded = [&](ir::ValueId u) { return is_operand(u) || ir::is_matmul(fn.op(u).code); };
    std::vector<bool> made_of(fn.ops.size());
    made_of[static_cast<std::size_t>(v)] = true;
    for (ir::ValueId u = v + 1; u < fn.size(); ++u) {
        const ir::Op& op = fn.op(u);
        if (std::none_of(op.args.begin(), op.args.end(),
                         [&](ir::ValueId a) { return made_of[static_cast<std::size_t>(a)]; }))
            continue;
        if (is_step(op)) return true;
        made_of[static_cast<std::size_t>(u)] = !is_rounded(u);
    }
    return std::any_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) {
        return r.role != ir::Role::Input && made_of[static_cast<std::size_t>(r.value)] && !is_operand(r.value);
    });
}

}  // namespace forge::emit
