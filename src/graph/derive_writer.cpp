// ChunkWriter: the chunk's function, operation by operation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "forge/error.h"
#include "graph/derive_rows.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Attrs;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool has_tokens(const ir::Type& type) { return !type.shape.empty() && type.shape[0].symbol == ir::kChunkSymbol; }

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

}  // namespace

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
    if (const auto it = merged_.find(parts); it != merged_.end()) return it->second;
    const ValueId whole = merged_anew(parts);
    return merged_[parts] = whole;
}

ValueId ChunkWriter::merged_anew(const std::vector<ValueId>& parts) {
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
    ir::Known<std::optional<double>> known;
    return padding(v, known);
}

std::optional<double> ChunkWriter::padding(ValueId v, ir::Known<std::optional<double>>& known) const {
    return known.at(v, [&] { return padding_of(fn.op(v), known); });
}

std::optional<double> ChunkWriter::padding_of(const Op& op, ir::Known<std::optional<double>>& known) const {
    const auto arg = [&](std::size_t i) { return padding(op.args[i], known); };
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

}  // namespace forge::graph
