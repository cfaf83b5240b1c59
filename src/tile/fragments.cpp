#include "tile/fragments.h"

#include <algorithm>

#include "ir/infer.h"
#include "ir/rebuild.h"
#include "tile/decay_group.h"
#include "tile/fragment_steps.h"
#include "tile/order.h"

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

constexpr int kStagesOfTwo = 2;  ///< of each of two tasks that share a multiprocessor

/// Vectors of one number per token arrive as they lie in memory; all values that use them read a copy.
Function with_copied_vectors(const Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) {
        const ValueId v = ir::keep(out, op, std::move(args));
        const bool vector = op.code == Opcode::Param && op.attrs.role == Role::Input && op.type.rank() == 1 &&
                            op.type.shape[0].factor == 1;
        return vector ? ir::emit(out, Opcode::Copy, {v}, {}, op.where, op.name) : v;
    });
}

/// An output that is an input is a copy of it: what arrives belongs to the copies from global memory.
Function with_copied_outputs(const Function& fn) {
    Function out = fn;
    for (ir::Result& r : out.results)
        if (r.role == Role::Input && out.op(r.value).code == Opcode::Param)
            r.value = ir::emit(out, Opcode::Copy, {r.value}, {}, out.op(r.value).where, r.name);
    return out;
}

}  // namespace

bool is_block_matrix(const ir::Type& type) {
    return type.rank() == 2 && std::all_of(type.shape.begin(), type.shape.end(),
                                           [](const Dim& d) { return d.is_constant() && d.factor % kBlock == 0; });
}

bool is_block_inverse(const Op& op) {
    return op.code == Opcode::Inverse && is_block_matrix(op.type) && op.type.shape[0].factor == kBlock;
}

std::int64_t fragment_work_floats(const Function& fn, ValueId v) {
    constexpr std::int64_t kInverseFloats = 2 * kBlock * 72;  // the device library's
    if (is_block_inverse(fn.op(v))) return kInverseFloats;
    const Op& op = fn.op(v);
    return op.layout && is_fragment(op.layout->space) ? 0 : work_floats(fn, v, {4, true});
}

int parts_of(const Function& fn, ValueId v, const std::map<std::string, int>& spill_parts) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Inverse) return 2;
    if (op.code == Opcode::Param && op.attrs.role == Role::Spill) {
        const auto it = spill_parts.find(op.attrs.name);
        return it == spill_parts.end() ? 1 : it->second;
    }
    if (op.code != Opcode::Copy && op.code != Opcode::Mul) return 1;
    int parts = 1;
    for (const ValueId a : op.args) parts = std::max(parts, parts_of(fn, a, spill_parts));
    return parts;
}

TileKernel lower_to_fragments(const Function& kernel, const Sizes& sizes, const FragmentRules& rules) {
    const Function symbolic =
        ordered(with_carried_params(with_decay_rows(with_copied_outputs(with_copied_vectors(kernel)), sizes)));
    Function fn = symbolic;
    for (Op& op : fn.ops) op.type = with_sizes(std::move(op.type), sizes);
    const Function formed = in_forms(symbolic, fn, rules);
    if (rules.stages == 1) return with_memory(gathered(thrifty(formed)), 1, {});
    if (rules.output_groups == 0)
        return with_memory(gathered(overlapped(formed, rules.stages > kStagesOfTwo, nullptr)), rules.stages, {});
    const auto divided = [&](const Function& f) { return roles_of(f, vectors_alone(f), rules.output_groups); };
    const Roles roles = divided(formed);
    const Function in_order = gathered(overlapped(formed, true, &roles));
    return with_memory(in_order, rules.stages, divided(in_order));
}

}  // namespace forge::tile
