// Scales of rows and columns are merged, and moved from values that every task recomputes to values that are computed
// once:
//
//     (x * r) * s           ->  x * (r * s)              r and s along the same axis
//     x * r - y * r         ->  (x - y) * r              likewise x * r - (y * s) * r
//     t @ (x * r[:, None])  ->  (t * r[None, :]) @ x     t needs neither states nor the value axis, and is no input
//     (t @ x + y) * s       ->  (t * s) @ x + y * s      for such a t and a number s; also without y
//     (x * r) @ z - y * r   ->  (x @ z - y) * r          for a scale r of rows, of any factor of x
//
// For back ends that compute such values t ahead, for all chunks at once, while scaling x is work of every task.
#include <algorithm>

#include "graph/passes.h"
#include "graph/scales.h"
#include "graph/slice.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// The product of two scales along one axis, multiplied as vectors and numbers if they are.
ValueId joined(Function& out, ValueId a, ValueId b, const Location& where) {
    const Op x = out.op(a), y = out.op(b);
    const auto vector = [](const Op& op) { return op.code == Opcode::Unsqueeze && op.type.rank() == 2; };
    if (vector(x) && vector(y) && x.attrs.dim == y.attrs.dim)
        return ir::emit(out, Opcode::Unsqueeze, {ir::emit(out, Opcode::Mul, {x.args[0], y.args[0]}, {}, where)},
                        x.attrs, where);
    if (vector(x) && y.type.rank() == 0)
        return ir::emit(out, Opcode::Unsqueeze, {ir::emit(out, Opcode::Mul, {x.args[0], b}, {}, where)}, x.attrs,
                        where);
    if (vector(y) && x.type.rank() == 0) return joined(out, b, a, where);
    return ir::emit(out, Opcode::Mul, {a, b}, {}, where);
}

class Merging {
  public:
    Merging(const Function& fn, const std::string& value_axis) : uses_(ir::result_uses(fn)) {
        const auto users = ir::users_of(fn);
        const auto marks = slices(fn);
        for (std::size_t i = 0; i < fn.ops.size(); ++i) {
            const Op& op = fn.ops[i];
            uses_[i] += static_cast<int>(users[i].size());
            const bool cut = std::any_of(op.type.shape.begin(), op.type.shape.end(),
                                         [&](const Dim& d) { return d.symbol == value_axis; });
            ahead_before_.push_back(marks[i] == Slice::StateFree && !cut && op.code != Opcode::Param);
        }
    }

    ValueId visit(Function& out, const Op& op, std::vector<ValueId> args, std::size_t index) {
        const ValueId made = rewrite(out, op, std::move(args));
        ahead_.resize(out.ops.size(), false);
        ahead_[static_cast<std::size_t>(made)] = ahead_before_[index];
        once_.resize(out.ops.size(), false);
        once_[static_cast<std::size_t>(made)] = uses_[index] == 1;
        return made;
    }

  private:
    [[nodiscard]] bool ahead(ValueId v) const {
        return static_cast<std::size_t>(v) < ahead_.size() && ahead_[static_cast<std::size_t>(v)];
    }
    [[nodiscard]] bool once(ValueId v) const {
        return static_cast<std::size_t>(v) < once_.size() && once_[static_cast<std::size_t>(v)];
    }

    ValueId rewrite(Function& out, const Op& op, std::vector<ValueId> args) {
        if (op.code == Opcode::Mul) return product_of_scales(out, op, std::move(args));
        if ((op.code == Opcode::Add || op.code == Opcode::Sub) && op.type.rank() == 2)
            return common_scale(out, op, std::move(args));
        if (op.code == Opcode::Matmul) return contraction(out, op, std::move(args));
        if (op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub) return common_rows(out, op, std::move(args));
        return ir::keep(out, op, std::move(args));
    }

    ValueId product_of_scales(Function& out, const Op& op, std::vector<ValueId> args) {
        const ValueId kept = ir::keep(out, op, args);
        const auto outer = scaled(out, kept);
        if (!outer) return kept;
        if (const auto inner = scaled(out, outer->matrix);
            inner && once(outer->matrix) && (inner->axis == outer->axis || inner->axis < 0 || outer->axis < 0))
            return times(out, inner->matrix, joined(out, inner->scale, outer->scale, op.where), op);
        const Op sum = out.op(outer->matrix);
        if (outer->axis >= 0 || (sum.code != Opcode::MatmulAdd && sum.code != Opcode::Matmul) || !once(outer->matrix) ||
            !ahead(sum.args[0]))
            return kept;
        const ValueId a = ir::emit(out, Opcode::Mul, {sum.args[0], outer->scale}, {}, op.where);
        if (sum.code == Opcode::Matmul)
            return ir::emit(out, Opcode::Matmul, {a, sum.args[1]}, sum.attrs, op.where, op.name);
        return ir::emit(out, Opcode::MatmulAdd,
                        {a, sum.args[1], product_with_scale(out, sum.args[2], outer->scale, op)}, sum.attrs, op.where,
                        op.name);
    }

    ValueId product_with_scale(Function& out, ValueId v, ValueId scale, const Op& at) {
        if (const auto inner = scaled(out, v); inner && once(v))
            return times(out, inner->matrix, joined(out, inner->scale, scale, at.where), at);
        return ir::emit(out, Opcode::Mul, {v, scale}, {}, at.where);
    }

    static ValueId times(Function& out, ValueId matrix, ValueId scale, const Op& like) {
        return ir::emit(out, Opcode::Mul, {matrix, scale}, {}, like.where, like.name);
    }

    /// x r ± y r, where y may have been scaled by s r already.
    ValueId common_scale(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto x = scaled(out, args[0]), y = scaled(out, args[1]);
        if (!x || !y || x->axis != y->axis || !once(args[0]) || !once(args[1]))
            return ir::keep(out, op, std::move(args));
        if (x->scale == y->scale)
            return times(out, ir::emit(out, op.code, {x->matrix, y->matrix}, {}, op.where), x->scale, op);
        if (const ValueId rest = without(out, y->scale, x->scale, op.where); rest != ir::kNoValue)
            return times(
                out,
                ir::emit(out, op.code, {x->matrix, ir::emit(out, Opcode::Mul, {y->matrix, rest}, {}, op.where)}, {},
                         op.where),
                x->scale, op);
        return ir::keep(out, op, std::move(args));
    }

    /// (x r) @ s ± y r for a scale r of rows, whichever of the factors of x r it is.
    ValueId common_rows(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto y = scaled(out, args[2]);
        if (op.attrs.trans_a || !y || y->axis != 0 || !once(args[2])) return ir::keep(out, op, std::move(args));
        const ValueId x = unscaled(out, args[0], y->scale);
        if (x == ir::kNoValue) return ir::keep(out, op, std::move(args));
        return times(out, ir::keep(out, op, {x, args[1], y->matrix}), y->scale, op);
    }

    /// A product of a few matrices and scales without one of these; kNoValue if that is none of them.
    static ValueId unscaled(Function& out, ValueId product, ValueId scale, int depth = 0) {
        constexpr int kDeepest = 4;
        const Op p = out.op(product);
        if (const auto outer = scaled(out, product); outer && outer->scale == scale) return outer->matrix;
        for (std::size_t i = 0; p.code == Opcode::Mul && depth < kDeepest && i < 2; ++i) {
            const ValueId rest = unscaled(out, p.args[i], scale, depth + 1);
            if (rest == ir::kNoValue) continue;
            return ir::emit(out, Opcode::Mul, {rest, p.args[1 - i]}, {}, p.where, p.name);
        }
        return ir::kNoValue;
    }

    /// A product of scales without one of its factors; kNoValue if that is none of them.
    static ValueId without(Function& out, ValueId product, ValueId factor, const Location& where) {
        const Op p = out.op(product), f = out.op(factor);
        if (p.code == Opcode::Unsqueeze && f.code == Opcode::Unsqueeze && p.attrs.dim == f.attrs.dim) {
            const ValueId rest = without(out, p.args[0], f.args[0], where);
            const bool number = rest != ir::kNoValue && out.op(rest).type.rank() == 0;
            return rest == ir::kNoValue || number ? rest : ir::emit(out, Opcode::Unsqueeze, {rest}, p.attrs, where);
        }
        for (std::size_t i = 0; p.code == Opcode::Mul && i < 2; ++i)
            if (p.args[i] == factor) return p.args[1 - i];
        return ir::kNoValue;
    }

    ValueId contraction(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto right = scaled(out, args[1]);
        if (op.attrs.trans_a || op.attrs.trans_b || !right || right->axis != 0 || !once(args[1]) || !ahead(args[0]))
            return ir::keep(out, op, std::move(args));
        const Op scale = out.op(right->scale);
        if (scale.code != Opcode::Unsqueeze || out.op(scale.args[0]).type.rank() != 1)
            return ir::keep(out, op, std::move(args));
        Attrs front;
        front.dim = 0;
        const ValueId columns = ir::emit(out, Opcode::Unsqueeze, {scale.args[0]}, front, op.where);
        return ir::keep(out, op, {ir::emit(out, Opcode::Mul, {args[0], columns}, {}, op.where), right->matrix});
    }

    std::vector<int> uses_;
    std::vector<bool> ahead_before_, ahead_, once_;
};

}  // namespace

Function merge_scales(const Function& fn, const std::string& value_axis) {
    Function now = fn;
    constexpr int kRounds = 4;  // a scale moves one step per round
    for (int round = 0; round < kRounds; ++round) {
        Merging merging(now, value_axis);
        std::size_t index = 0;
        now = dce(cse(ir::rebuild(now, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            return merging.visit(out, op, std::move(args), index++);
        })));
    }
    return now;
}

}  // namespace forge::graph
