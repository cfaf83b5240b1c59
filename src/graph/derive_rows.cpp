#include "graph/derive_rows.h"

#include <fmt/format.h>

#include <algorithm>

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

/// Which axis of the wide ones is the given one; kNoValue for an axis of size 1.
int wide_index(const Shape& shape, std::int64_t axis) {
    const std::vector<int> wide = wide_axes(shape);
    const auto it = std::find(wide.begin(), wide.end(), static_cast<int>(axis));
    return it == wide.end() ? -1 : static_cast<int>(it - wide.begin());
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
            const std::int64_t axis = normal(op.attrs.dim, from);
            const std::vector<int> wide = wide_axes(from);
            const bool one = wide_index(from, axis) < 0;
            attrs.dim = first + std::count_if(wide.begin(), wide.end(), [&](int w) { return w < axis; });
            const ValueId v = one ? out_.unsqueeze(x.v, attrs.dim) : x.v;
            return {out_.emit(op.code, {v}, attrs, op.where), x.tokens};
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
