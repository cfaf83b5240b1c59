#include "graph/pullback.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "forge/error.h"
#include "graph/expression.h"
#include "ir/definition.h"
#include "ir/triangular.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::kNoValue;
using ir::Op;
using ir::Opcode;
using ir::Type;
using ir::ValueId;
using Gradients = std::vector<ValueId>;

Attrs along(std::int64_t dim) {
    Attrs attrs;
    attrs.dim = dim;
    return attrs;
}

Attrs running(std::int64_t dim, bool reverse, bool exclusive) {
    Attrs attrs = along(dim);
    attrs.reverse = reverse;
    attrs.exclusive = exclusive;
    return attrs;
}

/// Whether the derivative can be infinite where the value is not, or where values that nothing reads may be: what has
/// no gradient gives none then, and 0 times infinity is not formed. Padding depends on it: its rows are multiplied by
/// 0.
bool is_singular(Opcode code) {
    const Opcode singular[] = {Opcode::Log, Opcode::Log1p,      Opcode::Sqrt, Opcode::Rsqrt,
                               Opcode::Div, Opcode::Reciprocal, Opcode::Pow};
    return std::find(std::begin(singular), std::end(singular), code) != std::end(singular);
}

/// The rules of one op. Every function returns the gradients of the operands in their order.
class Pullback {
  public:
    Pullback(Function& out, const Op& op, ValueId y, ValueId dy) : out_(out), op_(op), y_(y), dy_(dy) {}

    Gradients run();

  private:
    [[nodiscard]] ValueId arg(std::size_t i) const { return op_.args[i]; }
    [[nodiscard]] const Type& type(ValueId v) const { return out_.op(v).type; }
    ValueId emit(Opcode code, std::vector<ValueId> args, Attrs attrs = {}) {
        return ir::emit(out_, code, std::move(args), std::move(attrs), op_.where);
    }
    ValueId leaf(Opcode code, Type type, Attrs attrs = {}) {
        return out_.add({code, std::move(type), {}, std::move(attrs), "", op_.where, std::nullopt});
    }
    Expression as_expression(ValueId v) { return {out_, v, op_.where}; }
    ValueId number(double x) { return ir::emit_constant(out_, x, op_.where); }
    ValueId expanded(ValueId v, const Shape& shape) {
        if (type(v).shape == shape) return v;
        return out_.add({Opcode::Expand, Type{type(v).dtype, shape}, {v}, {}, "", op_.where, std::nullopt});
    }
    ValueId zeros(const Shape& shape) { return expanded(number(0), shape); }
    [[nodiscard]] std::int64_t axis(const Type& t) const { return *ir::normal_axis(op_.attrs.dim, t.shape.size()); }
    [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
        throw CompileError(Diagnostic{fmt::format("{}: {}", ir::info(op_.code).name, what),
                                      "an operation with a gradient", to_string(op_.type), op_.where, hint});
    }

    ValueId reduced_to(ValueId v, Shape shape);
    [[nodiscard]] ValueId triangle_of(ValueId v) const;
    ValueId times(ValueId v, const Expression& factor, ValueId operand);
    Gradients elementwise();
    Gradients chosen();
    Gradients sum();
    Gradients maximum_along();
    Gradients cumulated_product();
    Gradients scan();
    ValueId place_in_axis(Type x, std::int64_t dim, bool from_end);
    Gradients selected();
    Gradients sliced();
    Gradients picked();
    ValueId others(const Type& x, std::int64_t dim, std::int64_t start, std::int64_t length, std::int64_t step);
    Gradients a_part();
    Gradients joined();
    Gradients repeated();
    Gradients inverse();
    Gradients product(ValueId dy);
    Gradients accumulated(Opcode sign);
    ValueId of_gates(ValueId rows, ValueId columns);
    ValueId triangle(Opcode side, ValueId p, std::int64_t diagonal);
    ValueId gated(ValueId p);
    ValueId with_ungated(ValueId sums, ValueId p, ValueId x, bool reverse);
    Gradients decay_mask();
    Gradients decay_matmul();
    Gradients decay_apply();
    Gradients permuted();

    Function& out_;
    Op op_;
    ValueId y_, dy_;
};

/// The sum over the axes that broadcasting made.
ValueId Pullback::reduced_to(ValueId v,
                             Shape shape) {  // NOLINT(performance-unnecessary-value-param): of an op that may move
    if (shape.empty())                       // rows first, whose numbers lie side by side
        while (!type(v).shape.empty())
            v = emit(Opcode::Sum, {v}, along(static_cast<std::int64_t>(type(v).shape.size()) - 1));
    while (type(v).shape.size() > shape.size()) v = emit(Opcode::Sum, {v}, along(0));
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (type(v).shape[i] == shape[i]) continue;
        const Attrs dim = along(static_cast<std::int64_t>(i));
        v = emit(Opcode::Unsqueeze, {emit(Opcode::Sum, {v}, dim)}, dim);
    }
    return v;
}

/// The `tril` or `triu` outside of which a value is 0, as itself or a factor of it.
ValueId Pullback::triangle_of(ValueId v) const {
    const Op& op = out_.op(v);
    if (op.code == Opcode::Tril || op.code == Opcode::Triu) return v;
    if (op.code != Opcode::Mul || type(op.args[0]).shape != type(op.args[1]).shape) return kNoValue;
    const ValueId left = triangle_of(op.args[0]);
    return left != kNoValue ? left : triangle_of(op.args[1]);
}

/// dy * factor, in the operand's shape. Where dy is 0 outside a triangle, so is the product, though an exponential be
/// infinite there.
ValueId Pullback::times(ValueId v, const Expression& factor, ValueId operand) {
    if (factor.is(0)) return kNoValue;
    const Expression dy = as_expression(v), product = dy * factor;
    const Expression safe = is_singular(op_.code) ? where(dy == 0.0, 0.0, product) : product;
    ValueId made = safe.value_in(out_, op_.where);
    const ValueId triangle = triangle_of(v);
    if (triangle != kNoValue && out_.op(factor.value_in(out_, op_.where)).code == Opcode::Exp)
        made = emit(out_.op(triangle).code, {made}, Attrs(out_.op(triangle).attrs));
    return reduced_to(made, type(operand).shape);
}

Gradients Pullback::elementwise() {
    const Expression zero = 0.0, y = as_expression(y_);
    const Expression x = as_expression(arg(0)), &a = x, b = as_expression(arg(op_.args.size() - 1));
    switch (op_.code) {  // NOLINT(clang-diagnostic-switch-enum): run() names all
#define FORGE_DERIVATIVE(Enum, derivative) \
    case Opcode::Enum:                     \
        return {times(dy_, derivative, arg(0))};
#define FORGE_DERIVATIVES(Enum, of_a, of_b) \
    case Opcode::Enum:                      \
        return {times(dy_, of_a, arg(0)), times(dy_, of_b, arg(1))};
#include "graph/derivatives.def"
        default:
            refuse("has no derivative", "add one to graph/derivatives.def");
    }
}

Gradients Pullback::chosen() {
    const Expression c = as_expression(arg(0)), dy = as_expression(dy_);
    const auto part = [&](const Expression& v, ValueId operand) {
        return reduced_to(v.value_in(out_, op_.where), type(operand).shape);
    };
    return {kNoValue, part(where(c, dy, 0.0), arg(1)), part(where(c, 0.0, dy), arg(2))};
}

Gradients Pullback::sum() {
    const Type x = type(arg(0));
    return {expanded(emit(Opcode::Unsqueeze, {dy_}, along(axis(x))), x.shape)};
}

/// Equal maxima have equal parts of the gradient, as in PyTorch.
Gradients Pullback::maximum_along() {
    const Shape shape = type(arg(0)).shape;
    const Attrs dim = along(axis(type(arg(0))));
    const ValueId is_largest = emit(Opcode::Eq, {arg(0), emit(Opcode::Unsqueeze, {y_}, dim)});
    const ValueId ones = emit(Opcode::Where, {is_largest, number(1), number(0)});
    const ValueId shares = emit(Opcode::Div, {dy_, emit(Opcode::Sum, {ones}, dim)});
    return {emit(Opcode::Mul, {ones, emit(Opcode::Unsqueeze, {shares}, dim)})};
}

/// y[i] = x[i] y[i-1]: what comes from behind is r[i] = dy[i] + x[i+1] r[i+1], and dx[i] = r[i] y[i-1] with y[-1] = 1,
/// so that nothing is divided by an x that may be 0.
Gradients Pullback::cumulated_product() {
    const Type x = type(arg(0));
    const bool turned = axis(x) != 0;
    if (x.rank() > 2) refuse("of more than two axes", "");
    Attrs swap;
    swap.perm = {1, 0};
    const auto turn = [&](ValueId v) { return turned ? emit(Opcode::Permute, {v}, swap) : v; };
    const ValueId rows = turn(arg(0)), y = turn(y_);
    const ValueId from_behind = emit(Opcode::LinearScan, {rows, turn(dy_)}, running(0, true, false));
    const ValueId before = emit(Opcode::LinearScan, {zeros(Shape(type(y).shape)), y}, running(0, false, true));
    const ValueId place = place_in_axis(type(y), 0, false);
    const ValueId first = (where(as_expression(place) == 0.0, 1.0, as_expression(before))).value_in(out_, op_.where);
    return {turn(emit(Opcode::Mul, {from_behind, first}))};
}

/// h[i] = decay[i] h[i-1] + x[i]: dx is the scan of dh from behind, d decay[i] = dx[i] h[i-1].
Gradients Pullback::scan() {
    if (op_.attrs.reverse || op_.attrs.exclusive) refuse("of a reverse or exclusive scan", "");
    const ValueId dx = emit(Opcode::LinearScan, {arg(0), dy_}, running(0, true, false));
    const ValueId before = emit(Opcode::LinearScan, {arg(0), arg(1)}, running(0, false, true));
    return {emit(Opcode::Mul, {dx, before}), dx};
}

/// 0, 1, ... along one axis (from the end: backwards), broadcast against the others. Tokens are counted by a running
/// sum.
ValueId Pullback::place_in_axis(Type x, std::int64_t dim, bool from_end) {
    const Dim size = x.shape[static_cast<std::size_t>(dim)];
    ValueId place = emit(Opcode::Cumsum, {expanded(number(1), {size})}, running(0, from_end, true));
    for (int i = static_cast<int>(dim) + 1; i < x.rank(); ++i)
        place = emit(Opcode::Unsqueeze, {place}, along(type(place).rank()));
    return place;
}

Gradients Pullback::selected() {
    const Type x = type(arg(0));
    const std::int64_t dim = axis(x), start = op_.attrs.start;
    const Expression place = as_expression(place_in_axis(x, dim, start < 0));
    const Expression here = place == static_cast<double>(start < 0 ? -start - 1 : start);
    const ValueId dy = emit(Opcode::Unsqueeze, {dy_}, along(dim));
    return {expanded(where(here, as_expression(dy), 0.0).value_in(out_, op_.where), x.shape)};
}

/// The elements that a slice of every `step`-th leaves out are 0.
Gradients Pullback::sliced() {
    if (op_.attrs.length != 0) return picked();
    const Attrs attrs = along(axis(type(arg(0))));
    std::vector<ValueId> parts(static_cast<std::size_t>(op_.attrs.step), kNoValue);
    for (std::size_t i = 0; i < parts.size(); ++i)
        parts[i] = static_cast<std::int64_t>(i) == op_.attrs.start ? dy_ : zeros(Shape(type(dy_).shape));
    return {parts.size() == 1 ? dy_ : emit(Opcode::Interleave, parts, attrs)};
}

/// A slice of so many elements of an axis of any size: a product with the matrix that picked them.
Gradients Pullback::picked() {
    const Type x = type(arg(0));
    const auto dim = static_cast<std::size_t>(axis(x));
    const Dim size = x.shape[dim], length(op_.attrs.length);
    if (x.rank() > 2) refuse("of so many elements of a tensor of more than two axes", "");
    const Expression all = as_expression(leaf(Opcode::Arange, {DType::F32, {size}}));
    Expression wanted =
        as_expression(leaf(Opcode::Arange, {DType::F32, {length}})) * static_cast<double>(op_.attrs.step);
    Expression first = static_cast<double>(op_.attrs.start);
    if (op_.attrs.start < 0 && size.is_constant()) first = static_cast<double>(size.factor + op_.attrs.start);
    else if (op_.attrs.start < 0) {
        Attrs of;
        of.name = size.symbol, of.count = size.factor;
        first = as_expression(leaf(Opcode::Size, {DType::F32, {}}, of)) + first;
    }
    wanted = wanted + first;
    const ValueId column = emit(Opcode::Unsqueeze, {wanted.value_in(out_, op_.where)}, along(1));
    const ValueId picks = where(as_expression(column) == all, 1.0, 0.0).value_in(out_, op_.where);  // [length, size]
    Attrs transposed;
    transposed.trans_a = true;
    if (x.rank() == 1) {
        const ValueId dy = emit(Opcode::Unsqueeze, {dy_}, along(1));
        return {emit(Opcode::Sum, {emit(Opcode::Mul, {picks, dy})}, along(0))};
    }
    return {dim == 0 ? emit(Opcode::Matmul, {picks, dy_}, transposed) : emit(Opcode::Matmul, {dy_, picks})};
}

Gradients Pullback::a_part() {
    std::vector<ValueId> parts(static_cast<std::size_t>(op_.attrs.count), kNoValue);
    for (std::size_t i = 0; i < parts.size(); ++i)
        parts[i] = static_cast<std::int64_t>(i) == op_.attrs.start ? dy_ : zeros(Shape(type(dy_).shape));
    return {parts.size() == 1 ? dy_ : emit(Opcode::Concat, parts, along(axis(type(arg(0)))))};
}

Gradients Pullback::joined() {
    Gradients gradients;
    const auto dim = static_cast<std::size_t>(axis(op_.type));
    const auto count = static_cast<std::int64_t>(op_.args.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < op_.args.size(); ++i) {
        const Dim part = type(arg(i)).shape[dim], whole = op_.type.shape[dim];
        Attrs attrs = along(static_cast<std::int64_t>(dim));
        if (op_.code == Opcode::Interleave) {
            attrs.start = static_cast<std::int64_t>(i), attrs.step = count;
            gradients.push_back(count == 1 ? dy_ : emit(Opcode::Slice, {dy_}, attrs));
        } else if (whole.is_constant()) {
            attrs.start = first, attrs.length = part.factor;
            gradients.push_back(emit(Opcode::Slice, {dy_}, attrs));
        } else {  // in units of the symbol
            attrs.count = whole.factor;
            std::vector<ValueId> units;
            for (attrs.start = first; attrs.start < first + part.factor; ++attrs.start)
                units.push_back(attrs.count == 1 ? dy_ : emit(Opcode::Part, {dy_}, attrs));
            gradients.push_back(units.size() == 1 ? units[0]
                                                  : emit(Opcode::Concat, units, along(static_cast<std::int64_t>(dim))));
        }
        first += part.factor;
    }
    return gradients;
}

Gradients Pullback::repeated() {
    Attrs attrs = along(axis(op_.type));
    attrs.step = op_.attrs.count;
    if (attrs.step == 1) return {dy_};
    ValueId total = kNoValue;
    for (attrs.start = 0; attrs.start < attrs.step; ++attrs.start) {
        const ValueId part = emit(Opcode::Slice, {dy_}, attrs);
        total = total == kNoValue ? part : emit(Opcode::Add, {total, part});
    }
    return {total};
}

Gradients Pullback::permuted() {
    Attrs back;
    back.perm.resize(op_.attrs.perm.size());
    for (std::size_t i = 0; i < back.perm.size(); ++i)
        back.perm[static_cast<std::size_t>(op_.attrs.perm[i])] = static_cast<std::int64_t>(i);
    return {emit(Opcode::Permute, {dy_}, back)};
}

/// T = A^-1 reads the strict lower triangle of A: dA = -tril(T' dT T', -1).
Gradients Pullback::inverse() {
    Attrs left, right, strict;
    left.trans_a = true, right.trans_b = true, strict.diagonal = -1;
    const ValueId inner = emit(Opcode::Matmul, {emit(Opcode::Matmul, {y_, dy_}, left), y_}, right);
    return {emit(Opcode::Neg, {emit(Opcode::Tril, {inner}, strict)})};
}

/// C = op(A) op(B): dA = dC op(B)' and dB = op(A)' dC, transposed where the operand is.
Gradients Pullback::product(ValueId dy) {
    const bool ta = op_.attrs.trans_a, tb = op_.attrs.trans_b;
    const auto matmul = [&](ValueId a, ValueId b, bool trans_a, bool trans_b) {
        Attrs attrs;
        attrs.trans_a = trans_a, attrs.trans_b = trans_b;
        return emit(Opcode::Matmul, {a, b}, attrs);
    };
    return {ta ? matmul(arg(1), dy, tb, true) : matmul(dy, arg(1), false, !tb),
            tb ? matmul(dy, arg(0), true, ta) : matmul(arg(0), dy, !ta, false)};
}

Gradients Pullback::accumulated(Opcode sign) {
    Gradients gradients = product(sign == Opcode::Sub ? emit(Opcode::Neg, {dy_}) : dy_);
    gradients.push_back(dy_);
    return gradients;
}

/// The gradient of the gates between tokens, from W = P * dP summed over what a token takes (rows) and gives (columns):
/// g[t] has a part in every pair j < t <= i (exclusive: t < i), and these are the rows from t (t + 1) on less the
/// columns from t on.
ValueId Pullback::of_gates(ValueId rows, ValueId columns) {
    const bool exclusive = op_.attrs.exclusive;
    ValueId sums = emit(Opcode::Cumsum, {emit(Opcode::Sub, {rows, columns})}, running(0, true, exclusive));
    if (exclusive) sums = emit(Opcode::Sub, {sums, columns});
    const Expression g = as_expression(op_.args.back());  // behind a gate of -inf no rounding of large sums is left
    return where(g == -std::numeric_limits<double>::infinity(), 0.0, as_expression(sums)).value_in(out_, op_.where);
}

ValueId Pullback::triangle(Opcode side, ValueId p, std::int64_t diagonal) {
    Attrs attrs;
    attrs.diagonal = diagonal;
    return emit(side, {p}, attrs);
}

/// Of a matrix over pairs of tokens those between which there is a gate. The nearest pairs have none (a token and
/// itself; exclusive: and the one before it). They would come into the sums of gates twice and cancel but for their
/// roundings, which are larger than all that steep gates leave.
ValueId Pullback::gated(ValueId p) { return triangle(Opcode::Tril, p, op_.attrs.exclusive ? -2 : -1); }

/// Sums over gated pairs, and what the nearest pairs of p add: of each one row of x.
ValueId Pullback::with_ungated(ValueId sums, ValueId p, ValueId x, bool reverse) {
    const std::int64_t nearest = op_.attrs.exclusive ? -1 : 0;
    if (nearest == 0 && ir::triangle_of(out_, p) == ir::Triangle::StrictLower) return sums;
    const ValueId pairs = triangle(Opcode::Triu, triangle(Opcode::Tril, p, nearest), nearest);
    if (op_.attrs.exclusive) {
        Attrs attrs;
        attrs.trans_a = reverse;
        return emit(Opcode::Add, {sums, emit(Opcode::MatmulOutFp32, {pairs, x}, attrs)});
    }
    const ValueId itself = emit(Opcode::Unsqueeze, {emit(Opcode::Sum, {pairs}, along(1))}, along(1));
    return emit(Opcode::Add, {sums, emit(Opcode::Mul, {itself, x})});
}

Gradients Pullback::decay_mask() {
    const ValueId w = gated(emit(Opcode::Mul, {y_, dy_}));
    return {of_gates(emit(Opcode::Sum, {w}, along(1)), emit(Opcode::Sum, {w}, along(0)))};
}

Gradients Pullback::decay_matmul() {
    const bool exclusive = op_.attrs.exclusive;
    const ValueId q = arg(0), k = arg(1), g = arg(2), p = gated(dy_);
    const ValueId dq = emit(Opcode::DecayApply, {p, k, g}, running(0, false, exclusive));
    const ValueId dk = emit(Opcode::DecayApply, {p, q, g}, running(0, true, exclusive));
    return {with_ungated(dq, dy_, k, false), with_ungated(dk, dy_, q, true),
            of_gates(emit(Opcode::Mul, {q, dq}), emit(Opcode::Mul, {k, dk}))};
}

Gradients Pullback::decay_apply() {
    if (op_.attrs.reverse) refuse("in reverse", "");
    const bool exclusive = op_.attrs.exclusive;
    const ValueId x = arg(1), g = arg(2), p = gated(arg(0));
    const ValueId dp = emit(Opcode::DecayMatmul, {dy_, x, g}, running(0, false, exclusive));
    const ValueId y = emit(Opcode::DecayApply, {p, x, g}, running(0, false, exclusive));
    const ValueId dx = emit(Opcode::DecayApply, {p, dy_, g}, running(0, true, exclusive));
    return {dp, with_ungated(dx, arg(0), dy_, true), of_gates(emit(Opcode::Mul, {y, dy_}), emit(Opcode::Mul, {x, dx}))};
}

Gradients Pullback::run() {
    switch (op_.code) {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) case Opcode::Enum:
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) case Opcode::Enum:
#define FORGE_COMPARE(Enum, name, formula, cost, doc)
#include "forge/ops.def"
        return elementwise();
        case Opcode::To:
        case Opcode::CacheResult:
        case Opcode::Copy:
            return {dy_};
        case Opcode::Where:
            return chosen();
        case Opcode::Sum:
            return sum();
        case Opcode::Amax:
            return maximum_along();
        case Opcode::Cumsum:
            return {emit(Opcode::Cumsum, {dy_}, running(op_.attrs.dim, !op_.attrs.reverse, op_.attrs.exclusive))};
        case Opcode::Cumprod:
            return cumulated_product();
        case Opcode::LinearScan:
            return scan();
        case Opcode::Permute:
            return permuted();
        case Opcode::Unsqueeze:
            return {emit(Opcode::Squeeze, {dy_}, along(axis(op_.type)))};
        case Opcode::Squeeze:
            return {emit(Opcode::Unsqueeze, {dy_}, along(axis(type(arg(0)))))};
        case Opcode::Select:
            return selected();
        case Opcode::Slice:
            return sliced();
        case Opcode::Part:
            return a_part();
        case Opcode::Concat:
        case Opcode::Interleave:
            return joined();
        case Opcode::RepeatInterleave:
            return repeated();
        case Opcode::Expand:
            return {reduced_to(dy_, Shape(type(arg(0)).shape))};
        case Opcode::Tril:
        case Opcode::Triu:
            return {emit(op_.code, {dy_}, op_.attrs)};
        case Opcode::Inverse:
            return inverse();
        case Opcode::Matmul:
        case Opcode::MatmulOutFp32:
            return product(dy_);
        case Opcode::MatmulAdd:
            return accumulated(Opcode::Add);
        case Opcode::MatmulSub:
            return accumulated(Opcode::Sub);
        case Opcode::DecayMask:
            return decay_mask();
        case Opcode::DecayMatmul:
            return decay_matmul();
        case Opcode::DecayApply:
            return decay_apply();
        case Opcode::L2norm:
        case Opcode::Softmax:
            throw InternalError(fmt::format("gradient: {} is not decomposed", ir::info(op_.code).name));
        case Opcode::LinearScanFrom:
        case Opcode::DecayRows:
            throw InternalError(fmt::format("gradient: {} is made for kernels", ir::info(op_.code).name));
        case Opcode::Param:
        case Opcode::PrevToken:
        case Opcode::Constant:
        case Opcode::Identity:
        case Opcode::Arange:
        case Opcode::Size:
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc)
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc)
#define FORGE_COMPARE(Enum, name, formula, cost, doc) case Opcode::Enum:
#include "forge/ops.def"
            return Gradients(op_.args.size(), kNoValue);
    }
    throw InternalError("gradient: unknown op");
}

}  // namespace

std::vector<ValueId> pullback(Function& out, const Op& op, ValueId y, ValueId dy) {
    return Pullback(out, op, y, dy).run();
}

}  // namespace forge::graph
