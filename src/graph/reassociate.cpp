// Sums of products that share a factor: a@x + a@y - a@z = a@(x + y - z), and likewise on the right. With the delta
// rule's s + k^T u - k^T (w s) this leaves exactly the two products with the state that the recurrence needs. Products
// with a sum that holds the identity are multiplied out: (I*d - k^T w) @ s = d*s - k^T (w s), and triple products are
// bracketed by cost, so that no K x K matrix is formed.
#include <map>

#include "graph/passes.h"
#include "graph/sums.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// Joins all products in `sum` whose left factors agree.
bool join_products(Function& fn, std::vector<Addend>& sum, const Location& where) {
    std::map<std::tuple<ValueId, bool, bool>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < sum.size(); ++i) {
        const Op& op = fn.op(sum[i].v);
        if (op.code == Opcode::Matmul) groups[{op.args[0], op.attrs.trans_a, op.attrs.trans_b}].push_back(i);
    }
    for (const auto& [key, members] : groups) {
        if (members.size() < 2) continue;
        std::vector<Addend> inner;
        for (const std::size_t i : members) inner.push_back({fn.op(sum[i].v).args[1], sum[i].negative});
        const bool flip = inner[0].negative;
        for (Addend& a : inner) a.negative = a.negative != flip;
        const Op product = fn.op(sum[members[0]].v);
        const ValueId joined = ir::emit(fn, Opcode::Matmul, {product.args[0], emit_sum(fn, inner, where)},
                                        product.attrs, where, product.name);
        for (auto it = members.rbegin(); it != members.rend(); ++it)
            sum.erase(sum.begin() + static_cast<std::ptrdiff_t>(*it));
        sum.push_back({joined, flip});
        return true;
    }
    return false;
}

ValueId join_sum(Function& fn, ValueId v) {
    const Op op = fn.op(v);
    std::vector<Addend> sum = addends(fn, v);
    bool changed = false;
    while (join_products(fn, sum, op.where)) changed = true;
    return changed ? emit_sum(fn, sum, op.where) : v;
}

bool scales_identity(const Function& fn, ValueId v) {
    return ir::comes_from(
        fn, v, [&](ValueId u) { return fn.op(u).code == Opcode::Identity; },
        [&](ValueId u) { return fn.op(u).code == Opcode::Mul; });
}

/// (d * I) @ s = d * s, for d a number or a column of factors.
ValueId apply_scaled_identity(Function& fn, ValueId v, ValueId s, const Location& where) {
    const Op op = fn.op(v);
    if (op.code == Opcode::Identity) return s;
    const std::size_t identity = scales_identity(fn, op.args[0]) ? 0 : 1;
    ValueId d = op.args[1 - identity];
    const Op scale = fn.op(d);
    if (scale.type.rank() == 1 ||
        (scale.type.rank() == 2 && scale.type.shape[0] == Dim(1))) {  // a row: on the diagonal it is a column
        Attrs attrs;
        if (scale.type.rank() == 2) d = ir::emit(fn, Opcode::Squeeze, {d}, attrs, where);
        attrs.dim = 1;
        d = ir::emit(fn, Opcode::Unsqueeze, {d}, attrs, where);
    }
    return ir::emit(fn, Opcode::Mul, {apply_scaled_identity(fn, op.args[identity], s, where), d}, {}, where);
}

/// A scale that is no more than a diagonal: a number, a row or a column.
bool diagonal_scale(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code == Opcode::Identity) return true;
    if (op.code != Opcode::Mul) return false;
    for (const std::size_t i : {0U, 1U}) {
        const ir::Type& scale = fn.op(op.args[1 - i]).type;
        const bool vector = scale.rank() < 2 || scale.shape[0] == Dim(1) || scale.shape[1] == Dim(1);
        if (scales_identity(fn, op.args[i])) return vector && diagonal_scale(fn, op.args[i]);
    }
    return false;
}

ValueId multiply_out(Function& fn, ValueId v);

/// (x ± y) @ s with an identity among the addends.
ValueId distribute(Function& fn, ValueId v) {
    const Op op = fn.op(v);
    const std::vector<Addend> sum = addends(fn, op.args[0]);
    std::vector<Addend> products;
    bool found = false;
    for (const Addend& a : sum) found = found || diagonal_scale(fn, a.v);
    if (!found || op.attrs.trans_b) return v;
    for (const Addend& a : sum) {
        const ValueId p = diagonal_scale(fn, a.v)
                              ? apply_scaled_identity(fn, a.v, op.args[1], op.where)
                              : multiply_out(fn, ir::emit(fn, Opcode::Matmul, {a.v, op.args[1]}, op.attrs, op.where));
        products.push_back({p, a.negative});
    }
    return emit_sum(fn, products, op.where);
}

double nominal(const Dim& d) {
    return static_cast<double>(d.factor) * (d.is_constant() ? 1 : d.symbol == "C" ? 64 : 128);
}

/// (a @ b) @ c as a @ (b @ c) where that is cheaper.
ValueId bracket(Function& fn, ValueId v) {
    const Op op = fn.op(v);
    const Op left = fn.op(op.args[0]);
    if (left.code != Opcode::Matmul || op.attrs.trans_a || op.attrs.trans_b) return v;
    const double m = nominal(op.type.shape[0]), p = nominal(op.type.shape[1]), n = nominal(left.type.shape[1]),
                 k = nominal(fn.op(left.args[0]).type.shape[left.attrs.trans_a ? 0 : 1]);
    if (k * p * (n + m) >= m * n * (k + p)) return v;
    Attrs inner, outer;
    inner.trans_a = left.attrs.trans_b;
    outer.trans_a = left.attrs.trans_a;
    const ValueId bc = ir::emit(fn, Opcode::Matmul, {left.args[1], op.args[1]}, inner, op.where);
    return ir::emit(fn, Opcode::Matmul, {left.args[0], bc}, outer, op.where, op.name);
}

ValueId multiply_out(Function& fn, ValueId v) {
    if (fn.op(v).code != Opcode::Matmul || fn.op(v).attrs.trans_a) return v;
    const ValueId d = distribute(fn, v);
    return d != v ? d : bracket(fn, v);
}

}  // namespace

ir::Function reassociate(const ir::Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) {
        const ValueId v = ir::keep(out, op, std::move(args));
        if (op.code == Opcode::Matmul) return multiply_out(out, v);
        if (op.code == Opcode::Add || op.code == Opcode::Sub) return join_sum(out, v);
        return v;
    });
}

}  // namespace forge::graph
