#include <algorithm>
#include <optional>

#include "graph/passes.h"
#include "graph/scales.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Args = std::vector<ValueId>;
using Rewrite = std::optional<ValueId>;

const std::vector<std::int64_t> kTranspose = {1, 0};

bool is_transpose(const Op& op) { return op.code == Opcode::Permute && op.attrs.perm == kTranspose; }
bool is_constant(const Function& fn, ValueId v, double value) {
    return fn.op(v).code == Opcode::Constant && fn.op(v).attrs.value == value;
}

ValueId make(Function& out, Opcode code, Args args, const Op& from, Attrs attrs = {}) {
    return ir::emit(out, code, std::move(args), std::move(attrs), from.where, from.name);
}

ValueId unsqueeze(Function& out, ValueId x, std::int64_t dim, const Op& from) {
    Attrs attrs;
    attrs.dim = dim;
    return make(out, Opcode::Unsqueeze, {x}, from, attrs);
}

ValueId transpose(Function& out, ValueId x, const Op& from) {
    Attrs attrs;
    attrs.perm = kTranspose;
    return make(out, Opcode::Permute, {x}, from, attrs);
}

/// The view of a view, or a view that does nothing.
Rewrite simplify_view(const Function& out, const Op& op, const Args& args) {
    const Op& x = out.op(args[0]);
    if (is_transpose(op) && is_transpose(x)) return x.args[0];
    if (op.code == Opcode::Squeeze && x.code == Opcode::Unsqueeze && x.attrs.dim == op.attrs.dim) return x.args[0];
    if (op.code == Opcode::Expand && x.type.shape == op.type.shape) return args[0];
    if (op.code == Opcode::RepeatInterleave && op.attrs.count == 1) return args[0];
    if (op.code == Opcode::Slice && x.type.shape == op.type.shape) return args[0];
    if (op.code == Opcode::Part && op.attrs.count == 1) return args[0];
    if ((op.code == Opcode::Concat || op.code == Opcode::Interleave) && args.size() == 1) return args[0];
    return std::nullopt;
}

/// A triangle of a triangle is the smaller of the two.
Rewrite triangle_of_triangle(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if (x.code != op.code) return std::nullopt;
    const bool whole =
        op.code == Opcode::Tril ? op.attrs.diagonal >= x.attrs.diagonal : op.attrs.diagonal <= x.attrs.diagonal;
    return whole ? args[0] : make(out, op.code, {x.args[0]}, op, op.attrs);
}

/// A decay mask is its own lower triangle.
Rewrite triangle_of_mask(const Function& out, const Op& op, const Args& args) {
    const Op& x = out.op(args[0]);
    const bool whole =
        op.code == Opcode::Tril && x.code == Opcode::DecayMask && op.attrs.diagonal >= (x.attrs.exclusive ? -1 : 0);
    return whole ? Rewrite(args[0]) : std::nullopt;
}

/// The last element of a running sum is the sum; of a function of it, the function of the sum.
Rewrite last_of_cumsum(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if (op.code != Opcode::Select || op.attrs.start != -1) return std::nullopt;
    const bool function = ir::info(x.code).kind == ir::OpInfo::Kind::Unary;
    const Op sum = function ? out.op(x.args[0]) : x;
    if (sum.code != Opcode::Cumsum || sum.attrs.reverse || sum.attrs.exclusive) return std::nullopt;
    if (sum.attrs.dim != op.attrs.dim) return std::nullopt;
    Attrs attrs;
    attrs.dim = op.attrs.dim;
    const ValueId last = make(out, Opcode::Sum, {sum.args[0]}, op, attrs);
    return function ? make(out, x.code, {last}, op, x.attrs) : last;
}

/// The last row of a decay mask is what is left of each token at the chunk's end.
Rewrite last_of_mask(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if (op.code != Opcode::Select || op.attrs.start != -1 || op.attrs.dim != 0) return std::nullopt;
    if (x.code != Opcode::DecayMask || x.attrs.exclusive) return std::nullopt;
    Attrs attrs;
    attrs.dim = 0, attrs.reverse = attrs.exclusive = true;
    return make(out, Opcode::Exp, {make(out, Opcode::Cumsum, {x.args[0]}, op, attrs)}, op);
}

/// Some columns of an outer product are that of a part of the vector.
Rewrite part_of_outer_product(Function& out, const Op& op, const Args& args) {
    const auto product = op.code == Opcode::Slice && op.attrs.dim == 1 ? outer_product(out, args[0]) : std::nullopt;
    if (!product) return std::nullopt;
    Attrs attrs = op.attrs;
    attrs.dim = 0;
    const ValueId part = make(out, Opcode::Slice, {product->vector}, op, attrs);
    return make(out, Opcode::Mul, product->column_first ? Args{product->column, part} : Args{part, product->column},
                op);
}

/// Transposed operands become flags of the product.
Rewrite fold_transposes(Function& out, const Op& op, const Args& args) {
    if (op.code != Opcode::Matmul && op.code != Opcode::MatmulOutFp32) return std::nullopt;
    const bool a = is_transpose(out.op(args[0])), b = is_transpose(out.op(args[1]));
    if (!a && !b) return std::nullopt;
    Attrs attrs = op.attrs;
    attrs.trans_a ^= a;
    attrs.trans_b ^= b;
    return make(out, op.code, {a ? out.op(args[0]).args[0] : args[0], b ? out.op(args[1]).args[0] : args[1]}, op,
                attrs);
}

/// f(view(x)) = view(f(x)): elementwise work is done on the smaller, or untransposed, value.
Rewrite sink_view_unary(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if (x.code != Opcode::Unsqueeze && !is_transpose(x)) return std::nullopt;
    return make(out, x.code, {make(out, op.code, {x.args[0]}, op, op.attrs)}, op, x.attrs);
}

/// The same for two operands: both views alike, or one a view and the other a number, or a vector against a transpose.
Rewrite sink_view_binary(Function& out, const Op& op, const Args& args) {
    const Op a = out.op(args[0]), b = out.op(args[1]);
    const auto same_view = [&] {
        return a.code == b.code && a.attrs == b.attrs && out.op(a.args[0]).type.rank() == out.op(b.args[0]).type.rank();
    };
    const auto view = [](const Op& x) { return x.code == Opcode::Unsqueeze || is_transpose(x); };
    if (view(a) && view(b) && same_view())
        return make(out, a.code, {make(out, op.code, {a.args[0], b.args[0]}, op)}, op, a.attrs);
    if (view(a) && b.type.rank() == 0)
        return make(out, a.code, {make(out, op.code, {a.args[0], args[1]}, op)}, op, a.attrs);
    if (view(b) && a.type.rank() == 0)
        return make(out, b.code, {make(out, op.code, {args[0], b.args[0]}, op)}, op, b.attrs);
    const auto vector = [&](const Op& x) { return x.code == Opcode::Unsqueeze && x.type.rank() == 2; };
    if (is_transpose(a) && vector(b))
        return transpose(out, make(out, op.code, {a.args[0], unsqueeze(out, b.args[0], 1 - b.attrs.dim, op)}, op), op);
    if (is_transpose(b) && vector(a))
        return transpose(out, make(out, op.code, {unsqueeze(out, a.args[0], 1 - a.attrs.dim, op), b.args[0]}, op), op);
    return std::nullopt;
}

/// cumsum and sum along axis 0 commute with a trailing axis of size 1.
Rewrite sink_view_scan(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if ((op.code != Opcode::Cumsum && op.code != Opcode::Sum) || op.attrs.dim != 0) return std::nullopt;
    if (x.code != Opcode::Unsqueeze || x.attrs.dim == 0) return std::nullopt;
    const ValueId scanned = make(out, op.code, {x.args[0]}, op, op.attrs);
    return unsqueeze(out, scanned, op.code == Opcode::Sum ? x.attrs.dim - 1 : x.attrs.dim, op);
}

ValueId expand(Function& out, ValueId x, const Op& to) {
    return out.add({Opcode::Expand, to.type, {x}, {}, to.name, to.where, std::nullopt});
}

/// What repeats a value is computed once: f(expand(x)) = expand(f(x)), and running sums down equal columns are one.
Rewrite sink_expand(Function& out, const Op& op, const Args& args) {
    const Op x = out.op(args[0]);
    if (x.code != Opcode::Expand) return std::nullopt;
    const Shape& small = out.op(x.args[0]).type.shape;
    const bool scan = (op.code == Opcode::Cumsum || op.code == Opcode::Sum) && op.attrs.dim == 0;
    if (scan && (small.size() != x.type.shape.size() || small[0] != x.type.shape[0])) return std::nullopt;
    if (!scan && ir::info(op.code).kind != ir::OpInfo::Kind::Unary) return std::nullopt;
    return expand(out, make(out, op.code, {x.args[0]}, op, op.attrs), op);
}

/// A factor needs no repeating to the shape that the other one has. What is added stays: a state's addend has its
/// shape.
Rewrite broadcast_instead(Function& out, const Op& op, const Args& args) {
    if (op.code != Opcode::Mul && op.code != Opcode::Div) return std::nullopt;
    for (const std::size_t i : {0, 1}) {
        const Op x = out.op(args[i]);
        if (x.code != Opcode::Expand) continue;
        const auto shape = ir::broadcast(out.op(x.args[0]).type.shape, out.op(args[1 - i]).type.shape);
        if (!shape || *shape != op.type.shape) continue;
        Args smaller = args;
        smaller[i] = x.args[0];
        return make(out, op.code, std::move(smaller), op, op.attrs);
    }
    return std::nullopt;
}

/// Of a number, or of one that fills a shape.
Rewrite neutral_element(const Function& out, const Op& op, const Args& args) {
    const auto same_type = [&](ValueId v) { return out.op(v).type == op.type; };
    const auto is_all = [&](std::size_t i, double value) {
        const Op& x = out.op(args[i]);
        return is_constant(out, x.code == Opcode::Expand ? x.args[0] : args[i], value);
    };
    if (op.code == Opcode::Mul && is_all(1, 1) && same_type(args[0])) return args[0];
    if (op.code == Opcode::Mul && is_all(0, 1) && same_type(args[1])) return args[1];
    if (op.code == Opcode::Div && is_all(1, 1) && same_type(args[0])) return args[0];
    if ((op.code == Opcode::Add || op.code == Opcode::Sub) && is_all(1, 0) && same_type(args[0])) return args[0];
    if (op.code == Opcode::Add && is_all(0, 0) && same_type(args[1])) return args[1];
    return std::nullopt;
}

bool is_joined(const Op& op) { return op.code == Opcode::Concat || op.code == Opcode::Interleave; }

/// What is joined of zeros and of values, as gradients of parts are: the values are joined once.
Rewrite sum_of_joined(Function& out, const Op& op, ValueId first, ValueId second) {
    const Op a = out.op(first), b = out.op(second);
    if (!is_joined(a) || a.code != b.code || a.attrs != b.attrs || a.args.size() != b.args.size()) return std::nullopt;
    const auto is_zero = [&](ValueId v) {
        const Op& x = out.op(v);
        return is_constant(out, x.code == Opcode::Expand ? x.args[0] : v, 0);
    };
    const auto has_zero = [&](const Op& joined) {
        return std::any_of(joined.args.begin(), joined.args.end(), is_zero);
    };
    if (!has_zero(a) && !has_zero(b)) return std::nullopt;
    Args sums;
    for (std::size_t i = 0; i < a.args.size(); ++i) {
        const ValueId x = a.args[i], y = b.args[i];
        if (out.op(x).type != out.op(y).type) return std::nullopt;
        sums.push_back(is_zero(x) ? y : is_zero(y) ? x : make(out, Opcode::Add, {x, y}, op));
    }
    return make(out, a.code, std::move(sums), op, a.attrs);
}

/// The same where something else is added in between.
Rewrite sum_with_joined(Function& out, const Op& op, const Args& args) {
    if (op.code != Opcode::Add) return std::nullopt;
    if (const auto sum = sum_of_joined(out, op, args[0], args[1])) return sum;
    for (const std::size_t i : {0, 1}) {
        const Op inner = out.op(args[i]);
        if (inner.code != Opcode::Add || inner.type != op.type) continue;
        for (const std::size_t j : {0, 1})
            if (const auto sum = sum_of_joined(out, op, inner.args[j], args[1 - i]))
                return make(out, Opcode::Add, {inner.args[1 - j], *sum}, op);
    }
    return std::nullopt;
}

/// 1 - exp(x) and exp(x) - 1 lose their digits near 0; expm1(x) keeps them.
Rewrite difference_from_one(Function& out, const Op& op, const Args& args) {
    if (op.code != Opcode::Sub) return std::nullopt;
    const Op a = out.op(args[0]), b = out.op(args[1]);
    if (a.code == Opcode::Exp && is_constant(out, args[1], 1)) return make(out, Opcode::Expm1, {a.args[0]}, op);
    if (b.code == Opcode::Exp && is_constant(out, args[0], 1))
        return make(out, Opcode::Neg, {make(out, Opcode::Expm1, {b.args[0]}, op)}, op);
    return std::nullopt;
}

Rewrite fold_constants(Function& out, const Op& op, const Args& args) {
    if (out.op(args[0]).code != Opcode::Constant || out.op(args[1]).code != Opcode::Constant) return std::nullopt;
    const auto value = ir::formula_of(op.code, out.op(args[0]).attrs.value, out.op(args[1]).attrs.value);
    if (!value) return std::nullopt;
    return ir::emit_constant(out, *value, op.where);
}

Op with_positive_axis(Op op, const Function& out, const Args& args) {
    if (!(ir::info(op.code).attributes & ir::kDim)) return op;
    const auto rank = out.op(args[0]).type.shape.size() + (op.code == Opcode::Unsqueeze ? 1 : 0);
    if (const auto axis = ir::normal_axis(op.attrs.dim, rank)) op.attrs.dim = *axis;
    return op;
}

Rewrite rewrite(Function& out, const Op& op, const Args& args) {
    if (const auto r = simplify_view(out, op, args)) return r;
    if (op.code == Opcode::Tril || op.code == Opcode::Triu) {
        if (const auto r = triangle_of_triangle(out, op, args)) return r;
    }
    if (const auto r = triangle_of_mask(out, op, args)) return r;
    if (const auto r = last_of_cumsum(out, op, args)) return r;
    if (const auto r = last_of_mask(out, op, args)) return r;
    if (const auto r = part_of_outer_product(out, op, args)) return r;
    if (const auto r = fold_transposes(out, op, args)) return r;
    if (const auto r = sink_view_scan(out, op, args)) return r;
    if (const auto r = sink_expand(out, op, args)) return r;
    const auto kind = ir::info(op.code).kind;
    if (kind == ir::OpInfo::Kind::Unary) return sink_view_unary(out, op, args);
    if (kind != ir::OpInfo::Kind::Binary) return std::nullopt;
    if (const auto r = neutral_element(out, op, args)) return r;
    if (const auto r = fold_constants(out, op, args)) return r;
    if (const auto r = difference_from_one(out, op, args)) return r;
    if (const auto r = sum_with_joined(out, op, args)) return r;
    if (const auto r = broadcast_instead(out, op, args)) return r;
    return sink_view_binary(out, op, args);
}

}  // namespace

ir::Function canonicalize(const ir::Function& fn) {
    return ir::rebuild(fn, [](Function& out, const Op& original, Args args) {
        const Op op = with_positive_axis(original, out, args);
        if (args.empty()) return ir::keep(out, op, std::move(args));
        if (const auto r = rewrite(out, op, args)) return *r;
        return ir::keep(out, op, std::move(args));
    });
}

}  // namespace forge::graph
