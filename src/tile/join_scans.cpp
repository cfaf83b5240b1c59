#include "tile/join_scans.h"

#include <optional>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "tile/stream.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// The operand of an op of this kind; kNoValue for another op.
ValueId operand_of(const Function& fn, ValueId v, Opcode code) {
    return fn.op(v).code == code ? fn.op(v).args[0] : ir::kNoValue;
}

bool is_forward(const Op& op) { return op.attrs.dim == 0 && !op.attrs.reverse && !op.attrs.exclusive; }

/// The gate g if v is exp of its sums along axis 0: `code` says which, running or whole.
ValueId gate_of_decay(const Function& fn, ValueId v, Opcode code) {
    const ValueId sums = operand_of(fn, v, Opcode::Exp);
    if (sums == ir::kNoValue || fn.op(sums).code != code || !is_forward(fn.op(sums))) return ir::kNoValue;
    return fn.op(sums).args[0];
}

/// The state h if `term` is h times the decay of g; `row`: the type of h.
std::optional<ValueId> remaining(const Function& fn, ValueId term, ValueId g, Opcode sums, const Shape& row) {
    const Op& product = fn.op(term);
    if (product.code != Opcode::Mul) return std::nullopt;
    for (const std::size_t i : {0U, 1U})
        if (gate_of_decay(fn, product.args[i], sums) == g && fn.op(product.args[1 - i]).type.shape == row)
            return product.args[1 - i];
    return std::nullopt;
}

/// `part`: a scan, or its last row.
std::optional<ValueId> joined(Function& fn, ValueId part, ValueId term) {
    const bool last = is_last_row(fn, part);
    const ValueId scan = last ? fn.op(part).args[0] : part;
    const Op from = fn.op(scan);
    if (from.code != Opcode::LinearScan || from.type.rank() != 2 || from.attrs.reverse || from.attrs.exclusive)
        return std::nullopt;
    const ValueId g = operand_of(fn, from.args[0], Opcode::Exp);
    if (g == ir::kNoValue) return std::nullopt;
    const auto h = remaining(fn, term, g, last ? Opcode::Sum : Opcode::Cumsum, {from.type.shape[1]});
    if (!h) return std::nullopt;
    const ValueId whole =
        ir::emit(fn, Opcode::LinearScanFrom, {from.args[0], from.args[1], *h}, {}, from.where, from.name);
    if (!last) return whole;
    const ValueId row = ir::emit(fn, Opcode::Select, {whole}, fn.op(part).attrs, fn.op(part).where);
    return ir::emit(fn, Opcode::Copy, {row}, {},
                    from.where);  // in a buffer of its own, as results are
}

}  // namespace

Function join_scans(const Function& fn) {
    const Function out = ir::rebuild(fn, [](Function& made, const Op& op, std::vector<ValueId> args) {
        if (op.code == Opcode::Add)
            for (const std::size_t i : {0U, 1U})
                if (const auto v = joined(made, args[i], args[1 - i])) return *v;
        return ir::keep(made, op, std::move(args));
    });
    return graph::dce(graph::cse(out));
}

}  // namespace forge::tile
