#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Args = std::vector<ValueId>;

bool is_matrix(const Op& op) { return op.type.rank() == 2; }

/// Of a matrix -x the matrix x, else kNoValue.
ValueId opposite(const Function& out, ValueId v) {
    const Op& op = out.op(v);
    return op.code == Opcode::Neg && is_matrix(op) ? op.args[0] : ir::kNoValue;
}

ValueId with_operands(Function& out, Opcode code, Args args, const Op& like) {
    return ir::emit(out, code, std::move(args), like.attrs, like.where, like.name);
}

/// The op on the matrices themselves, with a sign where one is left.
ValueId signed_sum(Function& out, const Op& op, const Args& args) {
    const bool subtracts = op.code == Opcode::Sub;
    const ValueId a = opposite(out, args[0]), b = opposite(out, args[1]);
    if (b != ir::kNoValue) return with_operands(out, subtracts ? Opcode::Add : Opcode::Sub, {args[0], b}, op);
    if (a != ir::kNoValue && !subtracts) return with_operands(out, Opcode::Sub, {args[1], a}, op);
    return ir::keep(out, op, args);
}

/// Whether f(-x) = -f(x), for each operand.
bool is_odd(Opcode code) {
    return code == Opcode::Matmul || code == Opcode::Tril || code == Opcode::Triu || code == Opcode::Sum;
}

ValueId odd(Function& out, const Op& op, Args args) {
    bool negative = false;
    for (ValueId& a : args)
        if (const ValueId x = opposite(out, a); x != ir::kNoValue) a = x, negative = !negative;
    const ValueId made = ir::keep(out, op, std::move(args));
    return negative ? ir::emit(out, Opcode::Neg, {made}, {}, op.where) : made;
}

}  // namespace

Function move_signs(const Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, const Args& args) {
        if ((op.code == Opcode::Add || op.code == Opcode::Sub) && is_matrix(op)) return signed_sum(out, op, args);
        if (const ValueId x = op.code == Opcode::Neg ? opposite(out, args[0]) : ir::kNoValue; x != ir::kNoValue)
            return x;
        return is_odd(op.code) ? odd(out, op, args) : ir::keep(out, op, args);
    });
}

}  // namespace forge::graph
