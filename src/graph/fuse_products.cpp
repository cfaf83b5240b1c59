// Two rewrites that make products cheap: a sum with a product becomes an accumulating product, and products whose
// result or first operand has a structural zero triangle are marked, so that back ends skip the zero half.
#include <algorithm>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "ir/triangular.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Tri;
using ir::ValueId;

/// Whether only the lower triangle of each value is read: by tril, or by elementwise ops of which that holds in turn.
std::vector<bool> only_lower_needed(const Function& fn) {
    const auto users = ir::users_of(fn);
    const auto result = ir::result_uses(fn);
    std::vector<bool> lower(fn.ops.size(), false);
    for (ValueId v = fn.size() - 1; v >= 0; --v) {
        const auto i = static_cast<std::size_t>(v);
        if (result[i] || users[i].empty() || fn.op(v).type.rank() != 2) continue;
        lower[i] = std::all_of(users[i].begin(), users[i].end(), [&](ValueId u) {
            const Op& user = fn.op(u);
            if (user.code == Opcode::Tril) return user.attrs.diagonal <= 0;
            return ir::is_elementwise(user.code) && user.type.shape == fn.op(v).type.shape &&
                   lower[static_cast<std::size_t>(u)];
        });
    }
    return lower;
}

Tri structural_zero(const Function& fn, const Op& op, bool only_lower) {
    if (only_lower) return Tri::OutLower;
    if (ir::triangle_of(fn, op.args[0]) == ir::Triangle::Full) return Tri::None;
    return op.attrs.trans_a ? Tri::AUpper : Tri::ALower;
}

Function mark_zeros(const Function& fn) {
    const auto lower = only_lower_needed(fn);
    std::size_t index = 0;
    return ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        const bool only_lower = lower[index++];
        Op marked = op;
        if (op.code == Opcode::Matmul) {
            Op mapped = op;
            mapped.args = args;
            marked.attrs.tri = structural_zero(out, mapped, only_lower);
        }
        return ir::keep(out, marked, std::move(args));
    });
}

/// The product operand of a sum that nothing else reads; -1 if there is none. The later product is preferred: the sum's
/// other operand is then ready.
int fusible_operand(const Function& fn, const Op& sum, const std::vector<int>& uses) {
    int best = -1;
    for (int i = 0; i < 2; ++i) {
        const ValueId a = sum.args[static_cast<std::size_t>(i)];
        const Op& op = fn.op(a);
        if (op.code != Opcode::Matmul || op.attrs.tri == Tri::OutLower || uses[static_cast<std::size_t>(a)] != 1)
            continue;
        if (op.type.shape != fn.op(sum.args[static_cast<std::size_t>(1 - i)]).type.shape) continue;
        if (sum.code == Opcode::Sub && i == 0) continue;  // a@b - c has no accumulating form
        if (best < 0 || a > sum.args[static_cast<std::size_t>(best)]) best = i;
    }
    return best;
}

Function accumulate(const Function& fn) {
    const auto users = ir::users_of(fn);
    auto uses = ir::result_uses(fn);
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i] += static_cast<int>(users[i].size());
    return ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        const int product = op.code == Opcode::Add || op.code == Opcode::Sub ? fusible_operand(fn, op, uses) : -1;
        if (product < 0) return ir::keep(out, op, std::move(args));
        const Op matmul = out.op(args[static_cast<std::size_t>(product)]);
        return ir::emit(out, op.code == Opcode::Add ? Opcode::MatmulAdd : Opcode::MatmulSub,
                        {matmul.args[0], matmul.args[1], args[static_cast<std::size_t>(1 - product)]}, matmul.attrs,
                        op.where, op.name);
    });
}

}  // namespace

ir::Function fuse_products(const ir::Function& fn) { return dce(accumulate(mark_zeros(fn))); }

}  // namespace forge::graph
