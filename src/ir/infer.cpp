#include "ir/infer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "forge/error.h"
#include "ir/definition.h"

namespace forge::ir {
namespace {

using Types = std::span<const Type>;

DType promote(DType a, DType b) {
    if (a == b) return a;
    if (is_half(a) && is_half(b)) return DType::F32;  // f16 with bf16
    if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
    return std::max(a, b);
}

/// A rank-0 operand does not widen a tensor of the same category (PyTorch's rule for scalars).
DType promote(const Type& a, const Type& b) {
    if (is_float(a.dtype) == is_float(b.dtype)) {
        if (a.rank() == 0 && b.rank() > 0) return b.dtype;
        if (b.rank() == 0 && a.rank() > 0) return a.dtype;
    }
    return promote(a.dtype, b.dtype);
}

TypeFault needs_float(Opcode code, const Type& got) {
    return {fmt::format("{}: needs a floating-point operand", info(code).name), "a float type", to_string(got), ""};
}

Inferred infer_broadcast(Opcode code, const Type& a, const Type& b, DType dtype) {
    auto shape = broadcast(a.shape, b.shape);
    if (!shape)
        return TypeFault{fmt::format("{}: shapes do not broadcast", info(code).name),
                         "equal sizes, or 1, from the right",
                         fmt::format("{} and {}", forge::to_string(a.shape), forge::to_string(b.shape)),
                         "add an axis with unsqueeze(x, dim), or transpose one operand"};
    return Type{dtype, *shape};
}

Inferred infer_axis_op(Opcode code, const Type& x, const Attrs& attrs, bool keeps) {
    if (!is_float(x.dtype)) return needs_float(code, x);
    const auto axis = normal_axis(attrs.dim, x.shape.size());
    if (!axis)
        return TypeFault{fmt::format("{}: dim {} is out of range", info(code).name, attrs.dim),
                         fmt::format("a dim in [{}, {})", -x.rank(), x.rank()), to_string(x), ""};
    Type result = x;
    if (!keeps) result.shape.erase(result.shape.begin() + *axis);
    return result;
}

Inferred infer_matmul(Opcode code, Types in, const Attrs& attrs) {
    const char* name = info(code).name;
    const Type &a = in[0], &b = in[1];
    if (a.rank() != 2 || b.rank() != 2)
        return TypeFault{fmt::format("{}: needs two matrices", name), "operands of rank 2",
                         fmt::format("{} and {}", to_string(a), to_string(b)), "add an axis with unsqueeze"};
    if (!is_float(a.dtype) || !is_float(b.dtype)) return needs_float(code, is_float(a.dtype) ? b : a);
    const Dim &inner_a = a.shape[attrs.trans_a ? 0 : 1], &inner_b = b.shape[attrs.trans_b ? 1 : 0];
    if (!(inner_a == inner_b))
        return TypeFault{fmt::format("{}: inner sizes differ: {} and {}", name, forge::to_string(inner_a),
                                     forge::to_string(inner_b)),
                         "[M, N] @ [N, P]",
                         fmt::format("{} @ {}", forge::to_string(a.shape), forge::to_string(b.shape)),
                         "transpose one operand"};
    if (a.dtype != b.dtype)
        return TypeFault{fmt::format("{}: operands have different types", name), "one element type, as in PyTorch",
                         fmt::format("{} @ {}", to_string(a), to_string(b)),
                         fmt::format("convert one operand: to(x, {})", a.dtype > b.dtype ? "b.dtype()" : "a.dtype()")};
    const bool wide = code != Opcode::Matmul;
    return Type{wide ? DType::F32 : a.dtype, {a.shape[attrs.trans_a ? 1 : 0], b.shape[attrs.trans_b ? 0 : 1]}};
}

Inferred infer_permute(const Type& x, const Attrs& attrs) {
    std::vector<std::int64_t> seen = attrs.perm;
    std::sort(seen.begin(), seen.end());
    bool valid = seen.size() == x.shape.size();
    for (std::size_t i = 0; valid && i < seen.size(); ++i) valid = seen[i] == static_cast<std::int64_t>(i);
    if (!valid)
        return TypeFault{"permute: not a permutation of the axes",
                         fmt::format("the axes 0..{} in some order", x.rank() - 1),
                         fmt::format("[{}] for {}", fmt::join(attrs.perm, ", "), to_string(x)), ""};
    Type result{x.dtype, {}};
    for (const auto axis : attrs.perm) result.shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
    return result;
}

TypeFault bad_axis(Opcode code, const Type& x, const Attrs& attrs) {
    return {fmt::format("{}: dim {} is out of range", info(code).name, attrs.dim), "", to_string(x), ""};
}

Inferred infer_unsqueeze(const Type& x, const Attrs& attrs) {
    const auto axis = normal_axis(attrs.dim, x.shape.size() + 1);
    if (!axis) return bad_axis(Opcode::Unsqueeze, x, attrs);
    Type result = x;
    result.shape.insert(result.shape.begin() + *axis, Dim(1));
    return result;
}

/// A slice of so many elements. Of an axis whose size is a symbol, whether it is long enough shows when it is bound.
Inferred infer_stretch(const Type& x, const Attrs& attrs, std::size_t axis) {
    Type result = x;
    Dim& d = result.shape[axis];
    if (d.symbol == kChunkSymbol)
        return TypeFault{
            "slice: so many tokens of a chunk", "an axis that is not the tokens'",
            fmt::format("dim {} of {}", axis, to_string(x)),
            "what a token sees of others goes through sums, scans and products with tril; token_mask tells "
            "tokens from padding"};
    const std::int64_t last = attrs.start + (attrs.length - 1) * attrs.step;
    const bool inside = attrs.start >= 0 ? !d.is_constant() || last < d.factor
                                         : last < 0 && (!d.is_constant() || attrs.start >= -d.factor);
    if (attrs.step < 1 || attrs.length < 1 || !inside)
        return TypeFault{"slice: not within the axis",
                         "a start and a length of at least 1 within it, and a step of at least 1",
                         fmt::format("start={} step={} length={} of dim {} of {}", attrs.start, attrs.step,
                                     attrs.length, axis, to_string(x)),
                         ""};
    d = Dim(attrs.length);
    return result;
}

Inferred infer_slice_like(Opcode code, const Type& x, const Attrs& attrs) {
    const auto axis = normal_axis(attrs.dim, x.shape.size());
    if (!axis) return bad_axis(code, x, attrs);
    Type result = x;
    Dim& d = result.shape[static_cast<std::size_t>(*axis)];
    if (code == Opcode::Select) {
        if (d.is_constant() && (attrs.start >= d.factor || attrs.start < -d.factor))
            return TypeFault{"select: index out of range", fmt::format("an index in [-{0}, {0})", d.factor),
                             std::to_string(attrs.start), ""};
        constexpr std::int64_t kTokens = 4;  // fewer than any chunk has, those of checks too
        if (d.symbol == kChunkSymbol && (attrs.start >= kTokens * d.factor || attrs.start < -kTokens * d.factor))
            return TypeFault{"select: a token so far into a chunk",
                             fmt::format("one of a chunk's first or last {} tokens", kTokens),
                             std::to_string(attrs.start), ""};
        result.shape.erase(result.shape.begin() + *axis);
    } else if (code == Opcode::Squeeze) {
        if (!(d == Dim(1))) return TypeFault{"squeeze: the axis is not of size 1", "1", forge::to_string(d), ""};
        result.shape.erase(result.shape.begin() + *axis);
    } else if (code == Opcode::RepeatInterleave) {
        if (attrs.count < 1)
            return TypeFault{"repeat_interleave: needs a positive count", "", std::to_string(attrs.count), ""};
        d.factor *= attrs.count;
    } else if (code == Opcode::Part) {
        if (attrs.count < 1 || d.factor % attrs.count != 0 || attrs.start < 0 || attrs.start >= attrs.count)
            return TypeFault{
                "part: the axis has no such part", "start in [0, count), and a count that divides the axis",
                fmt::format("start={} count={} of dim {} of {}", attrs.start, attrs.count, *axis, to_string(x)),
                "declare an axis whose halves are wanted as 2*D"};
        d.factor /= attrs.count;
    } else if (attrs.length != 0) {
        return infer_stretch(x, attrs, static_cast<std::size_t>(*axis));
    } else {  // Slice
        if (attrs.step < 1 || attrs.start < 0 || attrs.start >= attrs.step || d.factor % attrs.step != 0)
            return TypeFault{"slice: the step must divide the axis, and start lie in [0, step)", "x[start::step]",
                             fmt::format("start={} step={} of {}", attrs.start, attrs.step, to_string(x)), ""};
        d.factor /= attrs.step;
    }
    return result;
}

/// What a concatenation or interleaving of operands of one rank is.
Inferred infer_joined(Opcode code, Types in, const Attrs& attrs) {
    const char* name = info(code).name;
    const auto listed = [&] {
        std::vector<std::string> types;
        for (const Type& t : in) types.push_back(to_string(t));
        return fmt::format("{}", fmt::join(types, ", "));
    };
    if (in.empty()) return TypeFault{fmt::format("{}: no operands", name), "at least one", "none", ""};
    const auto axis = normal_axis(attrs.dim, in[0].shape.size());
    if (!axis) return bad_axis(code, in[0], attrs);
    const auto at = static_cast<std::size_t>(*axis);
    Type result = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) {
        Shape others = in[i].shape;
        if (others.size() == in[0].shape.size() && code == Opcode::Concat) others[at] = in[0].shape[at];
        if (others != in[0].shape)
            return TypeFault{
                fmt::format("{}: shapes differ", name),
                code == Opcode::Concat ? fmt::format("equal shapes but for dim {}", *axis) : "equal shapes", listed(),
                ""};
        if (is_float(in[i].dtype) != is_float(result.dtype))
            return TypeFault{fmt::format("{}: truth values beside numbers", name), "one kind of element", listed(),
                             "where(c, 1.0, 0.0) makes numbers"};
        result.dtype = promote(result.dtype, in[i].dtype);
        const Dim& d = in[i].shape[at];
        if (d.symbol != result.shape[at].symbol)
            return TypeFault{
                fmt::format("{}: the sizes {} and {} have no sum", name, forge::to_string(result.shape[at]),
                            forge::to_string(d)),
                "numbers, or multiples of one symbol", listed(),
                "declare the axis that the result stands for as a number, or its parts as D and the whole as 2*D"};
        result.shape[at].factor += d.factor;
    }
    if (code == Opcode::Concat && in.size() > 1 && result.shape[at].symbol == kChunkSymbol)
        return TypeFault{"concat: along the tokens", "an axis that is not the tokens'", listed(),
                         "interleave(…, 0) gives each token several rows"};
    return result;
}

Inferred infer_leaf(Opcode code, const Attrs& attrs, const Type& own) {
    const auto tokens = [](const std::string& symbol) { return symbol == kChunkSymbol || symbol == kTokenSymbol; };
    if (code == Opcode::Constant && own.rank() != 0)
        return TypeFault{"constant: not a number", "no axes", to_string(own), "expand(…) gives it some"};
    if (code == Opcode::Size) {
        if (own != Type{DType::F32, {}} || attrs.name.empty() || attrs.count < 1)
            return TypeFault{"size: not of an axis", "the name of a symbol, a count of at least 1, and the type f32[]",
                             fmt::format("name=\"{}\" count={}: {}", attrs.name, attrs.count, to_string(own)), ""};
        if (tokens(attrs.name))
            return TypeFault{
                "size: the number of tokens in a chunk is the compiler's choice, and the last chunk is padded",
                "an axis that is not the tokens'", attrs.name, "sum(token_mask, 0) counts the chunk's tokens"};
    }
    if (code == Opcode::Arange) {
        if (own.rank() != 1 || !is_float(own.dtype))
            return TypeFault{"arange: not a vector of numbers", "f32[N]", to_string(own), ""};
        if (tokens(own.shape[0].symbol))
            return TypeFault{
                "arange: a token's place in its chunk is the compiler's choice", "an axis that is not the tokens'",
                to_string(own),
                "carry the count of tokens as a state of rank 0: its place is prev_n + cumsum(token_mask, 0)"};
    }
    return own;
}

Inferred infer_square(Opcode code, const Type& x) {
    if (x.rank() != 2 || !(x.shape[0] == x.shape[1]))
        return TypeFault{fmt::format("{}: needs a square matrix", info(code).name), "[N, N]", to_string(x), ""};
    if (code == Opcode::Inverse && x.dtype != DType::F32 && x.dtype != DType::F64)
        return TypeFault{"inverse: needs float32", "f32[N, N]", to_string(x), "use matmul_out_fp32, or to(x, F32)"};
    return x;
}

Inferred infer_scan(Types in) {
    if (!(in[0].shape == in[1].shape) || in[0].rank() == 0)
        return TypeFault{"linear_scan: decay and x differ in shape", "equal shapes [C, …]",
                         fmt::format("{} and {}", to_string(in[0]), to_string(in[1])),
                         "broadcast the decay with expand(decay, x)"};
    return Type{promote(in[0].dtype, in[1].dtype), in[0].shape};
}

Inferred infer_scan_from(Types in) {
    const Shape row(in[0].shape.begin() + (in[0].rank() > 0 ? 1 : 0), in[0].shape.end());
    if (in[0].shape != in[1].shape || in[0].rank() == 0 || in[2].shape != row)
        return TypeFault{"linear_scan_from: operand shapes", "[C, …], [C, …] and [ …]",
                         fmt::format("{}, {} and {}", to_string(in[0]), to_string(in[1]), to_string(in[2])), ""};
    return Type{promote(promote(in[0].dtype, in[1].dtype), in[2].dtype), in[0].shape};
}

Inferred infer_decay(Opcode code, Types in) {
    const Type& g = in.back();
    if (code == Opcode::DecayMask ? g.rank() != 1 : (g.rank() != 2 || in[0].shape != g.shape || in[1].shape != g.shape))
        return TypeFault{fmt::format("{}: operand shapes", info(code).name), "", to_string(g), ""};
    return Type{DType::F32, {g.shape[0], g.shape[0]}};
}

Inferred infer_where(Types in) {
    if (in[0].dtype != DType::Bool)
        return TypeFault{"where: the condition must be bool", "bool", to_string(in[0]),
                         "use a comparison, e.g. gt(x, 0)"};
    auto values = infer_broadcast(Opcode::Where, in[1], in[2], promote(in[1], in[2]));
    if (std::holds_alternative<TypeFault>(values)) return values;
    const Type& v = std::get<Type>(values);
    return infer_broadcast(Opcode::Where, in[0], v, v.dtype);
}

Inferred infer_expand(const Type& x, const Type& own) {
    const auto shape = broadcast(x.shape, own.shape);
    if (!shape || *shape != own.shape)
        return TypeFault{"expand: cannot broadcast to the wanted shape", forge::to_string(own.shape), to_string(x), ""};
    return Type{x.dtype, own.shape};
}

Inferred infer_elementwise(Opcode code, Types in) {
    const OpInfo::Kind kind = info(code).kind;
    if (kind == OpInfo::Kind::Unary) {
        if (!is_float(in[0].dtype)) return needs_float(code, in[0]);
        return in[0];
    }
    const DType dtype = kind == OpInfo::Kind::Compare ? DType::Bool : promote(in[0], in[1]);
    return infer_broadcast(code, in[0], in[1], dtype);
}

}  // namespace

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
    Shape result(std::max(a.size(), b.size()), Dim(1));
    for (std::size_t i = 0; i < result.size(); ++i) {
        const Dim da = i < a.size() ? a[a.size() - 1 - i] : Dim(1);
        const Dim db = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
        if (!(da == db) && !(da == Dim(1)) && !(db == Dim(1))) return std::nullopt;
        result[result.size() - 1 - i] = da == Dim(1) ? db : da;
    }
    return result;
}

std::optional<std::int64_t> normal_axis(std::int64_t axis, std::size_t rank) {
    const auto n = static_cast<std::int64_t>(rank);
    if (axis < -n || axis >= n) return std::nullopt;
    return axis < 0 ? axis + n : axis;
}

namespace {

bool is_extent(std::int64_t n) { return n >= 1 && n <= kMostExtent; }

/// Numbers so large that the rules' arithmetic on them would not hold.
std::optional<TypeFault> numbers_beyond(const OpInfo& op, const Attrs& attrs) {
    for (const std::int64_t n : {attrs.dim, attrs.start, attrs.step, attrs.count, attrs.length, attrs.diagonal})
        if (n < -kMostExtent || n > kMostExtent)
            return TypeFault{fmt::format("{}: a number beyond all axes", op.name),
                             fmt::format("between -{0} and {0}", kMostExtent), std::to_string(n), ""};
    return std::nullopt;
}

Inferred infer_by_rule(Opcode code, std::span<const Type> in, const Attrs& attrs, const Type& own) {
    const OpInfo& op = info(code);
    if (op.arity >= 0 && static_cast<int>(in.size()) != op.arity)
        return TypeFault{fmt::format("{}: takes {} operands", op.name, op.arity), std::to_string(op.arity),
                         std::to_string(in.size()), ""};
    if (op.kind != OpInfo::Kind::Other) return infer_elementwise(code, in);
    switch (code) {
        case Opcode::Param:
        case Opcode::Constant:
        case Opcode::Identity:
        case Opcode::Arange:
        case Opcode::Size:
            return infer_leaf(code, attrs, own);
        case Opcode::To:
            return Type{attrs.dtype, in[0].shape};
        case Opcode::CacheResult:
        case Opcode::Copy:
        case Opcode::PrevToken:
            return in[0];
        case Opcode::Where:
            return infer_where(in);
        case Opcode::Sum:
        case Opcode::Amax:
            return infer_axis_op(code, in[0], attrs, false);
        case Opcode::Cumsum:
        case Opcode::Cumprod:
        case Opcode::L2norm:
        case Opcode::Softmax:
            return infer_axis_op(code, in[0], attrs, true);
        case Opcode::LinearScan:
            return infer_scan(in);
        case Opcode::LinearScanFrom:
            return infer_scan_from(in);
        case Opcode::Permute:
            return infer_permute(in[0], attrs);
        case Opcode::Unsqueeze:
            return infer_unsqueeze(in[0], attrs);
        case Opcode::Squeeze:
        case Opcode::Select:
        case Opcode::Slice:
        case Opcode::Part:
        case Opcode::RepeatInterleave:
            return infer_slice_like(code, in[0], attrs);
        case Opcode::Concat:
        case Opcode::Interleave:
            return infer_joined(code, in, attrs);
        case Opcode::Expand:
            return infer_expand(in[0], own);
        case Opcode::Tril:
        case Opcode::Triu:
            if (in[0].rank() != 2)
                return TypeFault{fmt::format("{}: needs a matrix", op.name), "rank 2", to_string(in[0]), ""};
            return in[0];
        case Opcode::Inverse:
            return infer_square(code, in[0]);
        case Opcode::Matmul:
        case Opcode::MatmulOutFp32:
            return infer_matmul(code, in, attrs);
        case Opcode::MatmulAdd:
        case Opcode::MatmulSub: {
            auto product = infer_matmul(code, in, attrs);
            if (auto* t = std::get_if<Type>(&product); t && t->shape != in[2].shape)
                return TypeFault{"matmul_add: the addend's shape differs", forge::to_string(t->shape), to_string(in[2]),
                                 ""};
            return product;
        }
        case Opcode::DecayMask:
        case Opcode::DecayMatmul:
            return infer_decay(code, in);
        case Opcode::DecayRows:
            if (in[0].rank() != 2 || in[0].shape != in[1].shape || in[2].rank() != 0)
                return TypeFault{"decay_rows: operand shapes", "[C, K], [C, K], []", to_string(in[0]), ""};
            return Type{DType::F32, in[0].shape};
        case Opcode::DecayApply:
            if (in[0].rank() != 2 || in[1].rank() != 2 || in[1].shape != in[2].shape ||
                in[0].shape != Shape{in[1].shape[0], in[1].shape[0]})
                return TypeFault{"decay_apply: operand shapes", "[C, C], [C, V], [C, V]", to_string(in[0]), ""};
            return Type{DType::F32, in[1].shape};
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) case Opcode::Enum:
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) case Opcode::Enum:
#define FORGE_COMPARE(Enum, name, formula, cost, doc) case Opcode::Enum:
#include "forge/ops.def"
            break;  // handled by infer_elementwise
    }
    throw InternalError(fmt::format("infer: no rule for {}", op.name));
}

}  // namespace

bool has_extents(const Shape& shape) {
    return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return is_extent(d.factor); });
}

Inferred infer(Opcode code, std::span<const Type> in, const Attrs& attrs, const Type& own) {
    if (auto fault = numbers_beyond(info(code), attrs)) return std::move(*fault);
    Inferred inferred = infer_by_rule(code, in, attrs, own);
    const Type* type = std::get_if<Type>(&inferred);
    if (!type || has_extents(type->shape)) return inferred;
    return TypeFault{fmt::format("{}: an axis of no size", info(code).name), fmt::format("1 to {}", kMostExtent),
                     to_string(*type), ""};
}

ValueId emit(Function& fn, Opcode code, std::vector<ValueId> args, Attrs attrs, const Location& where,
             const std::string& name) {
    std::vector<Type> types;
    types.reserve(args.size());
    for (const ValueId a : args) types.push_back(fn.op(a).type);
    const Inferred inferred = infer(code, types, attrs);
    if (const auto* fault = std::get_if<TypeFault>(&inferred))
        throw InternalError(fmt::format("emit: {} (expected {}, got {})", fault->what, fault->expected, fault->got));
    return fn.add({code, std::get<Type>(inferred), std::move(args), std::move(attrs), name, where, std::nullopt});
}

ValueId emit_constant(Function& fn, double value, const Location& where) {
    Attrs attrs;
    attrs.value = value;
    return fn.add({Opcode::Constant, Type{DType::F32, {}}, {}, attrs, "", where, std::nullopt});
}

}  // namespace forge::ir
