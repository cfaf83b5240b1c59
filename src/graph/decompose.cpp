#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

ValueId reduced(Function& out, Opcode code, ValueId x, const Op& op) {
    Attrs attrs;
    attrs.dim = op.attrs.dim;
    const ValueId r = ir::emit(out, code, {x}, attrs, op.where);
    return ir::emit(out, Opcode::Unsqueeze, {r}, attrs, op.where);
}

ValueId l2norm(Function& out, const Op& op, ValueId x) {
    const ValueId squares = ir::emit(out, Opcode::Mul, {x, x}, {}, op.where);
    const ValueId shifted = ir::emit(
        out, Opcode::Add, {reduced(out, Opcode::Sum, squares, op), ir::emit_constant(out, op.attrs.value, op.where)},
        {}, op.where);
    return ir::emit(out, Opcode::Mul, {x, ir::emit(out, Opcode::Rsqrt, {shifted}, {}, op.where)}, {}, op.where,
                    op.name);
}

ValueId softmax(Function& out, const Op& op, ValueId x) {
    const ValueId shifted = ir::emit(out, Opcode::Sub, {x, reduced(out, Opcode::Amax, x, op)}, {}, op.where);
    const ValueId e = ir::emit(out, Opcode::Exp, {shifted}, {}, op.where);
    return ir::emit(out, Opcode::Div, {e, reduced(out, Opcode::Sum, e, op)}, {}, op.where, op.name);
}

}  // namespace

ir::Function decompose(const ir::Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) {
        if (op.code == Opcode::L2norm) return l2norm(out, op, args[0]);
        if (op.code == Opcode::Softmax) return softmax(out, op, args[0]);
        return ir::keep(out, op, std::move(args));
    });
}

}  // namespace forge::graph
