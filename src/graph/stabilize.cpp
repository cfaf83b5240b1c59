// Stabilisation. Decays are exp of sums of gates over the tokens between two tokens; written with running sums G they
// are differences, exp(G_i - G_j), or products exp(G_i) * exp(-G_j) whose factors overflow. Recognised, for gates g
// with G = cumsum(g, 0):
//
//   exp(sum(g) - G), exp(G - g)                      -> running sums from the other end, or exclusive ones
//   tril(x * exp(G[:, None] - G[None, :]))           -> tril(x * decay_mask(g))
//   tril((a * exp(G[:, None])) @ (b * exp(-G[:, None]))^T)   (g [C])    -> tril((a @ b^T) * decay_mask(g))
//   tril((a * exp(G)) @ (b * exp(-G))^T)                     (g [C, K]) -> tril(decay_matmul(a, b, g))
//   exp(sum(g))[:, None] * ((k * exp(-G))^T @ v)   (g [C] or [C, K])    -> (k * exp(sum(g) - G))^T @ v, then as above
//   exp(G) * (p @ (v * exp(-G)))   (g [C, V], p lower triangular)       -> decay_apply(p, v, g)
//
// and the transposes of those under tril, under triu; with any further factors, with G - g instead of G on the left
// under tril(-1) (an exclusive read), and with constants added to one exponent and subtracted from the other (an
// anchor). Only sums of gates remain, so gates of -inf are exact zeros. What is under no triangle keeps its form.
#include <optional>

#include "graph/exponent.h"
#include "graph/passes.h"
#include "graph/sums.h"
#include "ir/infer.h"
#include "ir/known.h"
#include "ir/rebuild.h"
#include "ir/triangular.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Kind = Term::Kind;

/// A decay between rows i (later) and j of one gate: sum of c*g over (j, i], or (j, i) if exclusive.
struct Between {
    ValueId g = ir::kNoValue;
    double c = 1;
    std::int64_t repeat = 1;
    bool exclusive = false;
};

/// Takes c*(G on `later` - G on `earlier`) out of the two exponents (which may be one and the same list).
std::optional<Between> take_between(const Function& fn, Terms& later, const std::vector<int>& later_axes,
                                    Terms& earlier, const std::vector<int>& earlier_axes, int gate_rank, bool strict) {
    for (const Term& t : Terms(later)) {
        if (t.kind != Kind::Prefix || t.coefficient <= 0 || t.axes != later_axes || fn.op(t.g).type.rank() != gate_rank)
            continue;
        Terms rest = earlier;
        if (take(rest, Kind::Prefix, t.g, t.repeat, earlier_axes) != -t.coefficient) continue;
        earlier = std::move(rest);
        take(later, Kind::Prefix, t.g, t.repeat, later_axes);
        Between b{t.g, t.coefficient, t.repeat, false};
        rest = later;
        if (strict && t.repeat == 1 && take(rest, Kind::Plain, t.g, t.repeat, later_axes) == -t.coefficient) {
            later = std::move(rest);
            b.exclusive = true;
        }
        return b;
    }
    return std::nullopt;
}

/// Anchors: what one side adds and the other subtracts, with no token axis, is nothing.
void cancel_totals(Terms& a, Terms& b) {
    for (const Term& t : Terms(a)) {
        if (t.kind != Kind::Total) continue;
        Terms rest = b;
        if (take(rest, Kind::Total, t.g, t.repeat, t.axes) != -t.coefficient) continue;
        b = std::move(rest);
        take(a, Kind::Total, t.g, t.repeat, t.axes);
    }
}

class Stabilizer {
  public:
    Stabilizer(Function& out, Location where) : out_(out), where_(std::move(where)) {}

    /// v as it is needed where only entries j <= i (strict: j < i) count.
    ValueId under_tril(ValueId v, bool strict) {
        return (strict ? strictly_under_tril_ : under_tril_).at(v, [&] { return made_under_tril(v, strict); });
    }

    /// Of a triu of v, if it is the transpose of a tril of decays: that.
    std::optional<ValueId> transposed_triu(ValueId v, std::int64_t diagonal) {
        if (!has_exponential(out_, v)) return std::nullopt;
        const ValueId flipped = transpose(v), made = under_tril(flipped, diagonal > 0);
        if (made == flipped) return std::nullopt;
        Attrs lower;
        lower.diagonal = -diagonal;
        return rows(ir::emit(out_, Opcode::Tril, {made}, lower, where_), true);
    }

  private:
    ValueId made_under_tril(ValueId v, bool strict) {
        const Op op = out_.op(v);
        if (op.type.rank() != 2) return v;
        if (op.code == Opcode::Add || op.code == Opcode::Sub) {
            const ValueId a = under_tril(op.args[0], strict), b = under_tril(op.args[1], strict);
            return a == op.args[0] && b == op.args[1] ? v : ir::emit(out_, op.code, {a, b}, {}, op.where, op.name);
        }
        return product_under_tril(v, strict);
    }

    ValueId product_under_tril(ValueId v, bool strict) {
        Factored product = flatten(v);
        bool changed = false;
        std::vector<ValueId> masks;
        for (ValueId& f : product.factors)
            if (const auto m = matmul_under_tril(f, strict, masks)) {
                f = *m;
                changed = true;
            }
        while (const auto between = take_between(out_, product.exponent, {0}, product.exponent, {1}, 1, strict)) {
            masks.push_back(mask(*between));
            changed = true;
        }
        if (!changed) return v;
        product.factors.insert(product.factors.end(), masks.begin(), masks.end());
        return emit_product(out_, product, 2, where_);
    }

    /// The product tree, also where no exponential takes part outside a matmul.
    Factored flatten(ValueId v) {
        if (has_exponential(out_, v)) return factor(out_, v);
        Factored product;
        collect_factors(v, product.factors);
        return product;
    }

    void collect_factors(ValueId v, std::vector<ValueId>& factors) {
        const Op& op = out_.op(v);
        if (op.code != Opcode::Mul || factors.size() >= kMostFactors) return factors.push_back(v);
        for (const ValueId a : op.args) collect_factors(a, factors);
    }

    std::optional<ValueId> matmul_under_tril(ValueId v, bool strict, std::vector<ValueId>& masks) {
        const Op op = out_.op(v);
        if (op.code != Opcode::Matmul && op.code != Opcode::MatmulOutFp32) return std::nullopt;
        if (!has_exponential(out_, op.args[0]) || !has_exponential(out_, op.args[1])) return std::nullopt;
        const ValueId left = rows(op.args[0], op.attrs.trans_a), right = rows(op.args[1], !op.attrs.trans_b);
        Factored a = factor(out_, left), b = factor(out_, right);
        cancel_totals(a.exponent, b.exponent);
        bool changed = false;
        while (const auto scalar = take_between(out_, a.exponent, {0}, b.exponent, {0}, 1, strict)) {
            masks.push_back(mask(*scalar));
            changed = true;
        }
        const auto vector = take_between(out_, a.exponent, {0, 1}, b.exponent, {0, 1}, 2, strict);
        if (vector && vector->repeat == 1) return decay_matmul(a, b, *vector);
        if (!changed) return std::nullopt;
        Attrs attrs;
        attrs.trans_b = true;
        return ir::emit(out_, op.code, {emit_rows(a, left), emit_rows(b, right)}, attrs, op.where, op.name);
    }

    ValueId decay_matmul(const Factored& a, const Factored& b, const Between& between) {
        const ValueId g = scaled(between);
        Attrs attrs;
        attrs.exclusive = between.exclusive;
        return ir::emit(out_, Opcode::DecayMatmul, {emit_rows(a, g), emit_rows(b, g), g}, attrs, where_);
    }

    /// Of a product factor by factor, of a matmul that of the transposed operands.
    ValueId transpose(ValueId v) {
        const Op op = out_.op(v);
        const auto rank = [&](std::size_t i) { return out_.op(op.args[i]).type.rank(); };
        if (op.type.rank() == 0) return v;
        if (op.code == Opcode::Mul && rank(0) != 1 && rank(1) != 1)
            return ir::emit(out_, op.code, {transpose(op.args[0]), transpose(op.args[1])}, {}, op.where, op.name);
        if (op.code != Opcode::Matmul && op.code != Opcode::MatmulOutFp32) return rows(v, true);
        Attrs attrs = op.attrs;
        attrs.trans_a = !op.attrs.trans_b, attrs.trans_b = !op.attrs.trans_a;
        return ir::emit(out_, op.code, {op.args[1], op.args[0]}, attrs, op.where, op.name);
    }

    /// An operand with the tokens as rows.
    ValueId rows(ValueId v, bool transposed) {
        if (!transposed) return v;
        Attrs attrs;
        attrs.perm = {1, 0};
        return ir::emit(out_, Opcode::Permute, {v}, attrs, where_);
    }

    /// What is left of an operand may be nothing, or a number.
    ValueId emit_rows(const Factored& product, ValueId shape_of) {
        const bool nothing = product.factors.empty() && product.exponent.empty();
        return like(nothing ? ir::emit_constant(out_, 1, where_) : emit_product(out_, product, 2, where_), shape_of);
    }

    ValueId like(ValueId v, ValueId shape_of) {
        if (out_.op(v).type.shape == out_.op(shape_of).type.shape) return v;
        return out_.add(
            {Opcode::Expand, {out_.op(v).type.dtype, out_.op(shape_of).type.shape}, {v}, {}, "", where_, std::nullopt});
    }

    ValueId scaled(const Between& b) {
        return b.c == 1 ? b.g : ir::emit(out_, Opcode::Mul, {b.g, ir::emit_constant(out_, b.c, where_)}, {}, where_);
    }

    ValueId mask(const Between& between) {
        Attrs attrs;
        attrs.exclusive = between.exclusive;
        ValueId m = ir::emit(out_, Opcode::DecayMask, {scaled(between)}, attrs, where_);
        if (between.repeat == 1) return m;
        for (const std::int64_t dim : {0, 1}) {
            Attrs repeat;
            repeat.dim = dim;
            repeat.count = between.repeat;
            m = ir::emit(out_, Opcode::RepeatInterleave, {m}, repeat, where_);
        }
        return m;
    }

    /// The addend p @ (v * exp(-G)) of a sum that is multiplied by exp(G), as decay_apply; what is left of the factor
    /// exp(G) in `outer`.
    std::optional<ValueId> applied(ValueId addend, Terms& outer) {
        const Op op = out_.op(addend);
        if (op.code != Opcode::Matmul || op.attrs.trans_a || op.attrs.trans_b || !has_exponential(out_, op.args[1]))
            return std::nullopt;
        const ir::Triangle p = ir::triangle_of(out_, op.args[0]);
        if (p == ir::Triangle::Full) return std::nullopt;
        Factored values = factor(out_, op.args[1]);
        Terms left = outer;
        cancel_totals(left, values.exponent);
        const auto between =
            take_between(out_, left, {0, 1}, values.exponent, {0, 1}, 2, p == ir::Triangle::StrictLower);
        if (!between || between->repeat != 1) return std::nullopt;
        const ValueId g = scaled(*between);
        Attrs attrs;
        attrs.exclusive = between->exclusive;
        outer = std::move(left);
        return ir::emit(out_, Opcode::DecayApply, {op.args[0], emit_rows(values, g), g}, attrs, where_);
    }

    Function& out_;
    Location where_;
    ir::Known<ValueId> under_tril_, strictly_under_tril_;

  public:
    /// A product with exp(G) of values that a triangle was applied to, or of a sum with such an addend.
    ValueId decayed_values(ValueId v) {
        const Factored whole = factor(out_, v);
        for (std::size_t f = 0; f < whole.factors.size(); ++f) {
            std::vector<Addend> sum = addends(out_, whole.factors[f]);
            bool changed = false;
            for (Addend& a : sum) {
                Factored rest = whole;
                rest.factors[f] = a.v;
                if (const auto applied_values = applied(a.v, rest.exponent)) {
                    rest.factors[f] = *applied_values;
                    changed = true;
                }
                a.v = emit_product(out_, rest, 2, where_);
            }
            if (changed) return emit_sum(out_, sum, where_);
        }
        return v;
    }

    /// A product over the tokens, times the decay of the whole chunk: that decay belongs to the operand whose exponents
    /// are -G, where it makes them sums over the tokens that follow.
    ValueId total_moved_inside(ValueId v) {
        Factored whole = factor(out_, v);
        for (ValueId& f : whole.factors) {
            const Op op = out_.op(f);
            if (op.code != Opcode::Matmul || !op.attrs.trans_a || op.attrs.trans_b) continue;
            for (const int side : {0, 1}) {  // the axis of the result that the operand's columns become
                if (!has_exponential(out_, op.args[static_cast<std::size_t>(side)])) continue;
                Factored operand = factor(out_, op.args[static_cast<std::size_t>(side)]);
                if (!move_totals(whole.exponent, side, operand.exponent)) continue;
                std::vector<ValueId> args = op.args;
                args[static_cast<std::size_t>(side)] =
                    like(emit_product(out_, operand, 2, where_), op.args[static_cast<std::size_t>(side)]);
                f = ir::emit(out_, Opcode::Matmul, args, op.attrs, op.where, op.name);
                return emit_product(out_, whole, 2, where_);
            }
        }
        return v;
    }

  private:
    static bool move_totals(Terms& outer, int side, Terms& inner) {
        bool moved = false;
        for (const Term& t : Terms(inner)) {
            if (t.kind != Kind::Prefix || t.coefficient >= 0 || t.axes.empty() || t.axes[0] != 0) continue;
            const std::vector<int> in_result = t.axes.size() == 2 ? std::vector<int>{side} : std::vector<int>{};
            Terms rest = outer;
            if (take(rest, Kind::Total, t.g, 1, in_result) != -t.coefficient) continue;
            outer = std::move(rest);
            add_term(inner, {Kind::Total, -t.coefficient, t.g, 1, {t.axes.begin() + 1, t.axes.end()}});
            moved = true;
        }
        return moved;
    }
};

/// Products that are provably lower triangular need no tril around them to be treated alike.
std::optional<bool> strictness(const Function& out, const Op& op, ValueId v) {
    if (op.code != Opcode::Mul || op.type.rank() != 2) return std::nullopt;
    const ir::Triangle t = ir::triangle_of(out, v);
    if (t == ir::Triangle::Full || t == ir::Triangle::UnitLower) return std::nullopt;
    return t == ir::Triangle::StrictLower;
}

}  // namespace

ir::Function stabilize(const ir::Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& op, std::vector<ValueId> args) -> ValueId {
        Stabilizer stabilizer(out, op.where);
        if (op.code == Opcode::Tril && op.attrs.diagonal <= 0)
            args[0] = stabilizer.under_tril(args[0], op.attrs.diagonal < 0);
        if (op.code == Opcode::Triu && op.attrs.diagonal >= 0)
            if (const auto transposed = stabilizer.transposed_triu(args[0], op.attrs.diagonal)) return *transposed;
        if (op.code == Opcode::Exp)
            if (const ValueId e = emit_exp(out, linear_terms(out, args[0]), op.type.rank(), op.where);
                e != ir::kNoValue && out.op(e).type == op.type)
                return e;
        const ValueId v = ir::keep(out, op, std::move(args));
        if (op.code == Opcode::Sub || op.code == Opcode::Add) return with_safe_sums(out, v);
        if (const auto strict = strictness(out, op, v)) return stabilizer.under_tril(v, *strict);
        if (op.code != Opcode::Mul || op.type.rank() != 2 || !has_exponential(out, v)) return v;
        const ValueId applied = stabilizer.decayed_values(v);
        return applied != v ? applied : stabilizer.total_moved_inside(v);
    });
}

}  // namespace forge::graph
