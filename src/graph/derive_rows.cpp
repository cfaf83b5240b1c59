#include "graph/derive_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "forge/error.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Attrs;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

const Dim kOne(1);

bool has_tokens(const ir::Type& type) { return !type.shape.empty() && type.shape[0].symbol == ir::kChunkSymbol; }

/// Which axis of the wide ones is the given one; kNoValue for an axis of size 1.
int wide_index(const Shape& shape, std::int64_t axis) {
    const std::vector<int> wide = wide_axes(shape);
    const auto it = std::find(wide.begin(), wide.end(), static_cast<int>(axis));
    return it == wide.end() ? -1 : static_cast<int>(it - wide.begin());
}

std::optional<double> pointwise_of(Opcode code, double x, double b) {
    switch (code) {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) \
    case Opcode::Enum:                                      \
        return formula;
#include "forge/ops.def"
        default:
            return ir::formula_of(code, x, b);
    }
}

std::int64_t normal(std::int64_t axis, const Shape& shape) {
    return axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis;
}

}  // namespace

std::vector<int> wide_axes(const Shape& shape) {
    std::vector<int> axes;
    for (std::size_t i = 0; i < shape.size(); ++i)
        if (!(shape[i] == kOne)) axes.push_back(static_cast<int>(i));
    return axes;
}

// -- writing ----------------------------------------------------------------------------------------------------------

ValueId ChunkWriter::known_or_added(Op op) {
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& o = fn.op(v);
        if (o.code == op.code && o.args == op.args && o.attrs == op.attrs && o.type == op.type) return v;
    }
    return fn.add(std::move(op));
}

ValueId ChunkWriter::emit(Opcode code, std::vector<ValueId> args, Attrs attrs, const Location& where) {
    if (code == Opcode::Neg && fn.op(args[0]).code == Opcode::Neg) return fn.op(args[0]).args[0];
    if (code == Opcode::Neg && fn.op(args[0]).code == Opcode::Constant)
        return constant_at(-fn.op(args[0]).attrs.value, where);
    std::vector<ir::Type> types;
    for (const ValueId a : args) types.push_back(type(a));
    const ir::Inferred inferred = ir::infer(code, types, attrs);
    if (const auto* fault = std::get_if<ir::TypeFault>(&inferred))
        throw InternalError(fmt::format("derive: {} (expected {}, got {})", fault->what, fault->expected, fault->got));
    return known_or_added({code, std::get<ir::Type>(inferred), std::move(args), std::move(attrs), "", where, {}});
}

ValueId ChunkWriter::param(const std::string& name, Role role, const ir::Type& type, const Location& where) {
    Attrs attrs;
    attrs.name = name;
    attrs.role = role;
    const ValueId v = known_or_added({Opcode::Param, type, {}, attrs, "", where, {}});
    fn.op(v).name = role == Role::State ? "prev_" + name : name;
    return v;
}

ValueId ChunkWriter::constant_at(double value, const Location& where) {
    Attrs attrs;
    attrs.value = value;
    return known_or_added({Opcode::Constant, {DType::F32, {}}, {}, attrs, "", where, {}});
}

ValueId ChunkWriter::expand(ValueId v, const Shape& shape) {
    if (type(v).shape == shape) return v;
    return known_or_added({Opcode::Expand, {type(v).dtype, shape}, {v}, {}, "", fn.op(v).where, {}});
}

ValueId ChunkWriter::identity(const Dim& n) {
    return known_or_added({Opcode::Identity, {DType::F32, {n, n}}, {}, {}, "", {}, {}});
}

ValueId ChunkWriter::mask() { return param(ir::kTokenMaskName, Role::Mask, {DType::F32, {Dim(ir::kChunkSymbol)}}, {}); }

ValueId ChunkWriter::add(ValueId a, ValueId b) {
    if (a == ir::kNoValue || b == ir::kNoValue) return a == ir::kNoValue ? b : a;
    if (fn.op(b).code == Opcode::Neg) return emit(Opcode::Sub, {a, fn.op(b).args[0]});
    return emit(Opcode::Add, {a, b});
}

ValueId ChunkWriter::sub(ValueId a, ValueId b) {
    if (b == ir::kNoValue) return a;
    return a == ir::kNoValue ? neg(b) : emit(Opcode::Sub, {a, b});
}

ValueId ChunkWriter::mul(ValueId a, ValueId b) {
    if (a == ir::kNoValue || b == ir::kNoValue) return a == ir::kNoValue ? b : a;
    if (is_number(a, 1) && type(a).rank() == 0) return b;
    if (is_number(b, 1) && type(b).rank() == 0) return a;
    return emit(Opcode::Mul, {a, b});
}

ValueId ChunkWriter::at(Opcode code, ValueId v, std::int64_t dim, std::int64_t start, std::int64_t step) {
    Attrs attrs;
    attrs.dim = dim;
    attrs.start = start;
    attrs.step = step;
    return emit(code, {v}, attrs, fn.op(v).where);
}

ValueId ChunkWriter::cumsum(ValueId v, bool exclusive) {
    Attrs attrs;
    attrs.exclusive = exclusive;
    return emit(Opcode::Cumsum, {v}, attrs);
}

ValueId ChunkWriter::tril(ValueId v, bool strict) {
    Attrs attrs;
    attrs.diagonal = strict ? -1 : 0;
    return emit(Opcode::Tril, {v}, attrs);
}

ValueId ChunkWriter::transpose(ValueId v) {
    if (type(v).rank() != 2) return v;
    Attrs attrs;
    attrs.perm = {1, 0};
    return emit(Opcode::Permute, {v}, attrs);
}

ValueId ChunkWriter::repeat(ValueId v, std::int64_t count, std::int64_t dim) {
    if (count == 1) return v;
    const Op op = fn.op(v);
    if (dim == 0 && op.code == Opcode::Unsqueeze && op.attrs.dim > 0)
        return unsqueeze(repeat(op.args[0], count), op.attrs.dim);
    Attrs attrs;
    attrs.dim = dim;
    attrs.count = count;
    return emit(Opcode::RepeatInterleave, {v}, attrs);
}

ValueId ChunkWriter::interleave(const std::vector<ValueId>& parts, std::int64_t dim) {
    if (parts.size() == 1) return parts[0];
    if (dim == 0)
        if (const ValueId whole = merged(parts); whole != ir::kNoValue) return whole;
    Attrs attrs;
    attrs.dim = dim;
    return emit(Opcode::Interleave, parts, attrs);
}

/// Rows by turns, where all of them are made alike: from rows of one value, by the same operations.
ValueId ChunkWriter::merged(const std::vector<ValueId>& parts) {
    const auto count = static_cast<std::int64_t>(parts.size());
    const Op first = fn.op(parts[0]);
    if (std::all_of(parts.begin(), parts.end(), [&](ValueId p) { return p == parts[0]; }))
        return has_tokens(first.type) ? repeat(parts[0], count) : parts[0];
    const auto same = [&](auto&& equal) {
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (fn.op(parts[i]).code != first.code || !equal(fn.op(parts[i]), i)) return false;
        return true;
    };
    if (first.code == Opcode::Slice) {
        const bool whole = first.attrs.dim == 0 && same([&](const Op& op, std::size_t i) {
                               return op.args == first.args && op.attrs.start == static_cast<std::int64_t>(i) &&
                                      op.attrs.step == count && op.attrs.length == 0 && op.attrs.dim == 0;
                           });
        return whole ? first.args[0] : ir::kNoValue;
    }
    const bool of_rows = ir::is_elementwise(first.code) && ir::along(first.code) == Along::Pointwise;
    const bool view = first.code == Opcode::Unsqueeze && first.attrs.dim > 0;
    const bool reduced = first.code == Opcode::Sum && first.attrs.dim > 0;
    if ((!of_rows && !view && !reduced) || !same([&](const Op& op, std::size_t) { return op.attrs == first.attrs; }))
        return ir::kNoValue;
    std::vector<ValueId> args;
    for (std::size_t a = 0; a < first.args.size(); ++a) {
        std::vector<ValueId> operands;
        for (const ValueId p : parts) operands.push_back(fn.op(p).args[a]);
        const bool tokens = has_tokens(type(operands[0]));
        if (tokens && type(operands[0]).rank() != first.type.rank() && of_rows) return ir::kNoValue;
        if (!tokens && std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return o != operands[0]; }))
            return ir::kNoValue;
        args.push_back(merged(operands));
        if (args.back() == ir::kNoValue) {
            if (ir::along(fn.op(operands[0]).code) == Along::Leaf) return ir::kNoValue;
            Attrs attrs;
            args.back() = emit(Opcode::Interleave, operands, attrs);
        }
    }
    return emit(first.code, std::move(args), first.attrs, first.where);
}

std::optional<double> ChunkWriter::padding(ValueId v) const {
    const Op& op = fn.op(v);
    const auto arg = [&](std::size_t i) { return padding(op.args[i]); };
    const auto zero = [&](std::size_t i) { return arg(i) == 0.0; };
    if (op.code == Opcode::Constant) return op.attrs.value;
    if (op.code == Opcode::Param) {
        if (op.attrs.role == Role::Mask) return 0.0;
        return op.attrs.role == Role::Input ? std::optional(def_.input(op.attrs.name)->pad) : std::nullopt;
    }
    if (op.code == Opcode::PrevToken) return std::nullopt;  // the first row of padding looks back to a token
    if (op.code == Opcode::Mul && (zero(0) || zero(1))) return 0.0;
    if (op.code == Opcode::Div && zero(0)) return 0.0;
    if (op.code == Opcode::Matmul) return zero(0) ? std::optional(0.0) : std::nullopt;
    if (op.code == Opcode::Where) {
        const auto a = arg(1), b = arg(2);
        return a && b && *a == *b ? a : std::nullopt;
    }
    const bool pointwise =
        ir::info(op.code).kind == ir::OpInfo::Kind::Unary || ir::info(op.code).kind == ir::OpInfo::Kind::Binary;
    if (pointwise) {
        const auto a = arg(0), b = op.args.size() > 1 ? arg(1) : std::optional(0.0);
        return a && b ? pointwise_of(op.code, *a, *b) : std::nullopt;
    }
    if (op.code == Opcode::To || op.code == Opcode::Expand || ir::is_view(op.code)) return arg(0);
    if (op.code == Opcode::RepeatInterleave) return arg(0);
    if ((op.code == Opcode::Sum || op.code == Opcode::L2norm) && op.attrs.dim != 0 && zero(0)) return 0.0;
    if (op.code == Opcode::Concat || op.code == Opcode::Interleave) {
        for (std::size_t i = 0; i < op.args.size(); ++i)
            if (arg(i) != arg(0)) return std::nullopt;
        return arg(0);
    }
    return std::nullopt;
}

ValueId ChunkWriter::per_token(TokenRow x) {
    if (x.tokens) return x.v;
    Shape shape = type(x.v).shape;
    shape.insert(shape.begin(), Dim(ir::kChunkSymbol));
    return expand(x.v, shape);
}

TokenRow ChunkWriter::masked(TokenRow x, double value) {
    const std::optional<double> now = padding(x.v);
    if (x.tokens && now == value) return x;
    ValueId valid = mask();
    for (int axis = x.tokens ? 1 : 0; axis < type(x.v).rank(); ++axis)
        valid = unsqueeze(valid, axis + (x.tokens ? 0 : 1));
    const bool finite = now ? std::isfinite(*now) : !x.tokens;  // else 0 * inf might be among them
    if (value == 0 && finite) return {mul(x.v, valid), true};
    Attrs attrs;
    attrs.dtype = DType::Bool;
    const ValueId there = emit(Opcode::To, {valid}, attrs);
    return {emit(Opcode::Where, {there, x.v, constant(value)}), true};
}

// -- operations for all tokens
// ------------------------------------------------------------------------------------------

TokenRow TokenRows::parameter(const Op& op) {
    if (op.attrs.role == Role::Mask) return {out_.mask(), true};
    const ir::InputDecl* in = out_.definition().input(op.attrs.name);
    if (!in) throw InternalError(fmt::format("derive: no input '{}'", op.attrs.name));
    ir::Type type = ir::phase_type(*in);
    ValueId v = out_.param(in->name, in->role, type, op.where);
    if (is_half(type.dtype)) {
        Attrs attrs;
        attrs.dtype = DType::F32;
        v = out_.emit(Opcode::To, {v}, attrs);
    }
    // Axes of size 1 go; several rows per token are for `select`.
    const bool tokens = in->role == Role::Input;
    for (std::size_t axis = type.shape.size(); axis-- > (tokens ? 1 : 0);)
        if (type.shape[axis] == kOne) v = out_.at(Opcode::Squeeze, v, static_cast<std::int64_t>(axis));
    return {v, tokens};
}

void TokenRows::refuse(const Op& op) const {
    throw CompileError(
        Diagnostic{fmt::format("derive: no form of {} for all tokens of a chunk", ir::info(op.code).name),
                   "elementwise operations, sums and products over a token's own axes, and their views",
                   ir::info(op.code).name, op.where, "write the phases chunk, decay and merge by hand"});
}

void TokenRows::refuse_rows(const Op& op) const {
    throw CompileError(
        Diagnostic{fmt::format("derive: {} of an input with several rows per token", ir::info(op.code).name),
                   "select(x, 0, row), a row at a time", ir::info(op.code).name, op.where, ""});
}

TokenRow TokenRows::pointwise(Opcode code, const std::vector<TokenRow>& args, const std::vector<Shape>& shapes,
                              const Shape& result, const Attrs& attrs, const Location& where) {
    const std::vector<int> wide = wide_axes(result);
    const bool tokens = std::any_of(args.begin(), args.end(), [](const TokenRow& a) { return a.tokens; });
    std::vector<ValueId> aligned;
    for (std::size_t i = 0; i < args.size(); ++i) {
        ValueId v = args[i].v;
        const auto offset = static_cast<int>(result.size() - shapes[i].size());
        std::vector<int> own = wide_axes(shapes[i]);
        for (int& axis : own) axis += offset;
        bool leading = !args[i].tokens;  // axes before all of its own align by themselves
        for (std::size_t w = 0; w < wide.size(); ++w) {
            const bool has = std::count(own.begin(), own.end(), wide[w]) > 0;
            if (has) leading = false;
            else if (!leading) {
                // Position among what the operand has by now.
                const auto before = static_cast<std::int64_t>(
                    std::count_if(wide.begin(), wide.begin() + static_cast<std::ptrdiff_t>(w),
                                  [&](int a) { return !args[i].tokens ? a >= (own.empty() ? 0 : own[0]) : true; }));
                v = out_.unsqueeze(v, before + (args[i].tokens ? 1 : 0));
            }
        }
        aligned.push_back(v);
    }
    return {out_.emit(code, std::move(aligned), attrs, where), tokens};
}

/// Reductions and scans along an axis of a token.
TokenRow TokenRows::along(const Op& op, TokenRow x, const Shape& shape) {
    const int index = wide_index(shape, normal(op.attrs.dim, shape));
    if (index < 0) {
        if (op.code == Opcode::L2norm || op.code == Opcode::Softmax) refuse(op);
        return op.attrs.exclusive ? TokenRow{out_.constant(0), false} : x;
    }
    Attrs attrs = op.attrs;
    attrs.dim = index + (x.tokens ? 1 : 0);
    return {out_.emit(op.code, {x.v}, attrs, op.where), x.tokens};
}

TokenRow TokenRows::rearranged(const Op& op, const std::vector<TokenRow>& args) {
    const TokenRow x = args[0];
    const Shape& from = shape(op.args[0]);
    const std::int64_t first = x.tokens ? 1 : 0;
    Attrs attrs = op.attrs;
    switch (op.code) {
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return x;
        case Opcode::Permute: {
            attrs.perm.clear();
            if (x.tokens) attrs.perm.push_back(0);
            for (const std::int64_t axis : op.attrs.perm)
                if (const int index = wide_index(from, axis); index >= 0) attrs.perm.push_back(index + first);
            if (std::is_sorted(attrs.perm.begin(), attrs.perm.end())) return x;
            return {out_.emit(op.code, {x.v}, attrs, op.where), x.tokens};
        }
        case Opcode::Expand: {
            Shape shape;
            if (x.tokens) shape.emplace_back(ir::kChunkSymbol);
            for (const int axis : wide_axes(op.type.shape))
                shape.push_back(op.type.shape[static_cast<std::size_t>(axis)]);
            // Axes that the operand lacks are put in by an addition to zeros of the result's shape.
            const TokenRow zeros{out_.expand(out_.constant(0), {shape.begin() + first, shape.end()}), false};
            const TokenRow wide = pointwise(Opcode::Add, {x, zeros}, {from, op.type.shape}, op.type.shape);
            return out_.type(x.v).shape == shape ? x : wide;
        }
        case Opcode::Select:
        case Opcode::Slice:
        case Opcode::Part: {
            const int index = wide_index(from, normal(op.attrs.dim, from));
            if (index < 0) return x;
            attrs.dim = index + first;
            const ValueId v = out_.emit(op.code, {x.v}, attrs, op.where);
            const bool one =
                op.code != Opcode::Select && out_.type(v).shape[static_cast<std::size_t>(attrs.dim)] == kOne;
            return {one ? out_.at(Opcode::Squeeze, v, attrs.dim) : v, x.tokens};
        }
        case Opcode::RepeatInterleave: {
            const int index = wide_index(from, normal(op.attrs.dim, from));
            if (index < 0) refuse(op);
            attrs.dim = index + first;
            return {out_.emit(op.code, {x.v}, attrs, op.where), x.tokens};
        }
        default:
            refuse(op);
    }
}

TokenRow TokenRows::joined(const Op& op, const std::vector<TokenRow>& args) {
    const bool tokens = std::any_of(args.begin(), args.end(), [](const TokenRow& a) { return a.tokens; });
    const std::int64_t axis = normal(op.attrs.dim, op.type.shape);
    const int index = wide_index(op.type.shape, axis);
    std::vector<ValueId> parts;
    for (std::size_t i = 0; i < args.size(); ++i) {
        ValueId v = tokens ? out_.per_token(args[i]) : args[i].v;
        if (wide_index(shape(op.args[i]), axis) < 0) v = out_.unsqueeze(v, index + (tokens ? 1 : 0));
        parts.push_back(v);
    }
    Attrs attrs = op.attrs;
    attrs.dim = index + (tokens ? 1 : 0);
    return {out_.emit(op.code, std::move(parts), attrs, op.where), tokens};
}

/// [m, k] @ [k, n], of which any may be 1.
TokenRow TokenRows::product(const Op& op, TokenRow a, TokenRow b) {
    const Shape &left = shape(op.args[0]), &right = shape(op.args[1]);
    const bool m = !(left[0] == kOne), k = !(left[1] == kOne), n = !(right[1] == kOne);
    if (!k) return pointwise(Opcode::Mul, {a, b}, {left, right}, op.type.shape, {}, op.where);
    if (!b.tokens && n && !(m && a.tokens)) {
        if (m || a.tokens) return {out_.emit(op.code, {a.v, b.v}, {}, op.where), a.tokens};
        return {out_.at(Opcode::Squeeze, out_.matmul(out_.unsqueeze(a.v, 0), b.v), 0), false};
    }
    if (!a.tokens && m && !n && b.tokens) return {out_.matmul(b.v, out_.transpose(a.v)), true};
    // Else a sum of products, [m, k, 1] * [1, k, n].
    Shape la = left, lb = right, all{left[0], left[1], right[1]};
    la.emplace_back(1);
    lb.insert(lb.begin(), kOne);
    const TokenRow products = pointwise(Opcode::Mul, {a, b}, {la, lb}, all, {}, op.where);
    const int index = wide_index(all, 1);
    return {out_.sum(products.v, index + (products.tokens ? 1 : 0)), products.tokens};
}

TokenRow TokenRows::operation(ValueId v, const std::vector<TokenRow>& args) {
    const Op& op = step_.op(v);
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (!args[i].tokens || out_.type(args[i].v).shape[0].factor == 1 || op.code == Opcode::PrevToken) continue;
        const std::int64_t count = out_.type(args[i].v).shape[0].factor;
        if (op.code != Opcode::Select || normal(op.attrs.dim, shape(op.args[i])) != 0) refuse_rows(op);
        return {
            out_.at(Opcode::Slice, args[i].v, 0, normal(op.attrs.start, Shape(static_cast<std::size_t>(count))), count),
            true};
    }
    switch (ir::along(op.code)) {
        case Along::Leaf:
            if (op.code == Opcode::Param) return parameter(op);
            [[fallthrough]];
        case Along::Place: {
            Op copy = op;
            if (copy.code == Opcode::Constant) return {out_.constant(copy.attrs.value), false};
            if (copy.code == Opcode::Identity && copy.type.shape[0] == kOne) return {out_.constant(1), false};
            if (copy.code == Opcode::Identity) return {out_.identity(copy.type.shape[0]), false};
            copy.name.clear();
            if (copy.code == Opcode::Arange && copy.type.shape[0] == kOne) return {out_.constant(0), false};
            return {out_.fn.add(copy), false};
        }
        case Along::Pointwise: {
            std::vector<Shape> shapes;
            for (const ValueId a : op.args) shapes.push_back(shape(a));
            return pointwise(op.code, args, shapes, op.type.shape, op.attrs, op.where);
        }
        case Along::Reduced:
        case Along::Scanned:
        case Along::Normalised:
            return along(op, args[0], shape(op.args[0]));
        case Along::Permuted:
        case Along::Inserted:
        case Along::Removed:
        case Along::Selected:
        case Along::Cut:
        case Along::Repeated:
        case Along::Broadcast:
            return rearranged(op, args);
        case Along::Joined:
            return joined(op, args);
        case Along::Contracted:
            if (op.args.size() == 2) return product(op, args[0], args[1]);
            break;
        case Along::Copied:
            return args[0];
        case Along::Shifted: {
            const Op shifted = out_.fn.op(args[0].v);
            const ValueId param = shifted.code == Opcode::To ? shifted.args[0] : args[0].v;
            ValueId x = out_.emit(Opcode::PrevToken, {param}, {}, op.where);
            if (is_half(out_.type(x).dtype)) {
                Attrs attrs;
                attrs.dtype = DType::F32;
                x = out_.emit(Opcode::To, {x}, attrs);
            }
            return {x, true};
        }
        case Along::Triangle:
            if (args[0].tokens && wide_axes(op.type.shape).size() == 2 && op.type.rank() == 2) {
                Attrs there;
                there.dtype = DType::Bool;
                const ValueId ones = out_.expand(out_.constant(1), op.type.shape);
                const ValueId kept = out_.emit(Opcode::To, {out_.emit(op.code, {ones}, op.attrs, op.where)}, there);
                return {out_.emit(Opcode::Where, {kept, args[0].v, out_.constant(0)}, {}, op.where), true};
            }
            [[fallthrough]];
        case Along::Matrix:
            if (!args[0].tokens && wide_axes(op.type.shape).size() == 2)
                return {out_.emit(op.code, {args[0].v}, op.attrs, op.where), false};
            break;
        case Along::RowScan:
        case Along::Pairs:
        case Along::Rows:
            break;
    }
    refuse(op);
}

}  // namespace forge::graph
