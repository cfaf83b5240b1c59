#include "emit/cuda/decay_groups.h"

#include <algorithm>

#include "emit/cuda/fragment_inputs.h"
#include "emit/loops.h"

namespace forge::emit {

using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using tile::DecayGroup;
using Space = Layout::Space;

const DecayGroup* DecayGroups::with(ValueId v) const {
    for (const DecayGroup& group : groups_) {
        const auto members = group.members();
        if (std::find(members.begin(), members.end(), v) != members.end()) return &group;
    }
    return nullptr;
}

bool DecayGroups::starts_kernel() const {
    if (groups_.empty() || fn_.op(fn_.op(groups_[0].head()).args[2]).layout->space != Space::Spill) return false;
    const auto& vectors = c_.kernel.tiles.vectors;
    for (ValueId v = 0; v < groups_[0].head(); ++v) {
        const Op& op = fn_.op(v);
        const bool made_ahead = std::find(vectors.begin(), vectors.end(), v) != vectors.end();
        if (op.code != Opcode::Param && op.layout->space != Space::Reg && !ir::is_view(op.code) && !made_ahead)
            return false;
    }
    return true;
}

kernel::Accesses DecayGroups::room(const DecayGroup& group) const {
    kernel::Accesses room = Context::floats_at(c_.kernel.tiles.work.at(group.head()), tile::group_floats(fn_, group));
    if (group.sum != ir::kNoValue) kernel::append(room, c_.memory(group.sum));
    return room;
}

kernel::Accesses DecayGroups::gates(const DecayGroup& group) const { return c_.memory(fn_.op(group.head()).args[2]); }

kernel::Accesses DecayGroups::operands(const DecayGroup& group) const {
    kernel::Accesses operands = c_.memory(fn_.op(group.head()).args[1]);
    for (const DecayGroup::Factor& f : group.factors) kernel::append(operands, c_.memory(fn_.op(f.product).args[0]));
    return operands;
}

std::string DecayGroups::sums(const DecayGroup& group) const {
    return fmt::format("GateSums<{}>(scratch + {})", tile::size_of(fn_.op(fn_.op(group.head()).args[1]).type, 1),
                       c_.kernel.tiles.work.at(group.head()));
}

void DecayGroups::sum(const std::string& sums, ValueId gates, const char* rows) const {
    const Op& op = fn_.op(gates);
    const char* const rows_at_once = c_.long_text() ? "<2>" : "";
    if (op.layout->space == Space::Spill)
        c_.out.line("sum_gates{}({}, {}, {}{});", rows_at_once, sums,
                    FragmentInputs::token_matrix(c_.plan, op.attrs.name, transfers_.tensor_of(op), op.attrs.at), rows,
                    columns_of(gates));
    else
        c_.out.line("sum_gates_of_tile{}({}, {}, {}, {});", rows_at_once, sums, tile_pointer(fn_, gates, c_.names),
                    op.layout->strides[0], op.layout->strides[1]);
}

/// `, …`: the columns that an input has, where those are not all.
std::string DecayGroups::columns_of(ValueId input) const {
    const Op& op = fn_.op(input);
    const std::string part = transfers_.columns_of(transfers_.tensor_of(op), op.attrs.at);
    return part.empty() ? "" : ", " + part;
}

void DecayGroups::sum_gates(const DecayGroup& group, const char* rows) const {
    sum(sums(group), fn_.op(group.head()).args[2], rows);
}

std::string DecayGroups::sums_of(ValueId apply) const {
    return fmt::format("GateSums<{}>(scratch + {})", tile::size_of(fn_.op(apply).type, 1),
                       c_.kernel.tiles.work.at(apply));
}

void DecayGroups::sum_gates_of(ValueId apply) const { sum(sums_of(apply), fn_.op(apply).args[2], "rows"); }

void DecayGroups::apply(ValueId v) const {
    const Op& op = fn_.op(v);
    c_.out.line("const Fragment<64, {}> {} = decay_apply<{}, {}, {}{}>({}, {}, {});", tile::size_of(op.type, 1),
                c_.name(v), op.attrs.reverse, op.attrs.exclusive, fn_.op(op.args[0]).layout->strides[0],
                op.layout->parts == 1 ? "" : fmt::format(", {}", op.layout->parts),
                tile_pointer(fn_, op.args[0], c_.names), c_.name(op.args[1]), sums_of(v));
}

std::string DecayGroups::rows_to(ValueId rows) const {
    if (rows == ir::kNoValue) return "NoRows{}";
    if (c_.is_operand(rows)) return fmt::format("RowsIn{{{}}}", c_.name(rows));
    const auto result =
        std::find_if(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) { return r.value == rows; });
    const ValueId scale = fn_.op(rows).args[2];
    const bool constant = fn_.op(scale).code == Opcode::Constant;
    return fmt::format("RowsTo{{{}, {}}}", transfers_.spill_pointer(result->name, "block", result->at),
                       constant ? float_literal(fn_.op(scale).attrs.value) : c_.name(scale));
}

/// An operand in shared memory, or an input where it lies.
std::string DecayGroups::first_operand(ValueId q) const {
    const Op& op = fn_.op(q);
    if (op.layout->space != Space::Spill) return c_.name(q);
    const int tensor = transfers_.tensor_of(op);
    return fmt::format("TokenRows<{}>({}, rows{})",
                       storage_type(c_.plan.tensors[static_cast<std::size_t>(tensor)].type.dtype),
                       FragmentInputs::token_matrix(c_.plan, op.attrs.name, tensor, op.attrs.at), columns_of(q));
}

void DecayGroups::multiply(const DecayGroup& group) const {
    const Op& head = fn_.op(group.head());
    std::string factors;
    for (const DecayGroup::Factor& f : group.factors) {
        c_.out.line("Fragment<64, 64> {};", c_.name(f.product));
        factors += fmt::format(", DecayFactor{{{}, {}, {}}}", first_operand(fn_.op(f.product).args[0]),
                               c_.name(f.product), rows_to(f.rows));
    }
    c_.out.line("decay_products<{}, {}{}>({}, {}, DecayedTokens{{{}, {}}}{});", head.attrs.exclusive,
                head.layout->parts, c_.long_text() ? ", 1" : "", sums(group),
                group.sum == ir::kNoValue ? "nullptr" : c_.name(group.sum), c_.name(head.args[1]), rows_to(group.rows),
                factors);
}

}  // namespace forge::emit
