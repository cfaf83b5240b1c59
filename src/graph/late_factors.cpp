// t@b - (t@a)@s = t@(b - a@s): a factor that two terms share on the left is applied once, last. Where products are
// cheap and what passes between kernels is not, this saves the product t@a and the memory for it; the price is that t
// is now on the critical path from state to state.
#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

bool plain_product(const Op& op) { return op.code == Opcode::Matmul && op.attrs.tri != ir::Tri::OutLower; }

/// The factor that the product `term` and the product `first` (first operand of the op) share on the left; kNoValue if
/// none.
ValueId shared_factor(const Function& fn, ValueId term, ValueId first, const std::vector<int>& uses) {
    const Op &a = fn.op(term), &b = fn.op(first);
    const bool once = uses[static_cast<std::size_t>(term)] == 1 && uses[static_cast<std::size_t>(first)] == 1;
    if (!plain_product(a) || !plain_product(b) || !once) return ir::kNoValue;
    return a.args[0] == b.args[0] && a.attrs.trans_a == b.attrs.trans_a ? a.args[0] : ir::kNoValue;
}

}  // namespace

Function late_factors(const Function& fn) {
    const auto users = ir::users_of(fn);
    auto uses = ir::result_uses(fn);
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i] += static_cast<int>(users[i].size());
    return dce(ir::rebuild(fn, [&, index = 0](Function& out, const Op& op, std::vector<ValueId> args) mutable {
        const Op& before = fn.op(index++);
        const bool sum = op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub;
        if (!sum || op.attrs.trans_a || shared_factor(fn, before.args[2], before.args[0], uses) == ir::kNoValue)
            return ir::keep(out, op, std::move(args));
        const Op inner = out.op(args[0]), term = out.op(args[2]);  // (t@a)@s and t@b
        if (term.attrs.trans_b) return ir::keep(out, op, std::move(args));
        ir::Attrs product;
        product.trans_a = inner.attrs.trans_b;
        product.trans_b = op.attrs.trans_b;
        if (product.trans_a) return ir::keep(out, op, std::move(args));
        const ValueId sum_of = ir::emit(out, op.code, {inner.args[1], args[1], term.args[1]}, product, op.where);
        ir::Attrs outer = term.attrs;
        return ir::emit(out, Opcode::Matmul, {term.args[0], sum_of}, outer, op.where, op.name);
    }));
}

}  // namespace forge::graph
