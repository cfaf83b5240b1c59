#include "interp/interp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <deque>
#include <functional>

#include "forge/error.h"
#include "interp/arrays.h"

namespace forge::interp {
namespace {

using ir::Op;
using ir::Opcode;

Value product(const Value& a, const Value& b, const ir::Attrs& attrs) {
    return matmul(attrs.trans_a ? permute(a, {1, 0}) : a, attrs.trans_b ? permute(b, {1, 0}) : b);
}

/// result[i, j] += weight(i, j, d) * exp(g[j+1, d] + … + g[i, d]) for j <= i; exclusive: without g[i, d], for j < i.
template <class Weight>
Value decay_product(const Value& g, bool exclusive, Weight weight) {
    const std::int64_t tokens = g.shape[0], width = g.rank() == 2 ? g.shape[1] : 1;
    Value result = zeros({tokens, tokens});
    for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t d = 0; d < width; ++d) {
            double total = 0;
            for (std::int64_t j = i - (exclusive ? 1 : 0); j >= 0; --j) {
                result.data[at(i * tokens + j)] += weight(i * width + d, j * width + d) * std::exp(total);
                total += g.data[at(j * width + d)];
            }
        }
    return result;
}

/// result[i, v] = sum over j <= i of p[i, j] x[j, v] exp(g[j+1, v] + … + g[i, v]); exclusive as above. reverse: the
/// same terms with x[i, v], summed over i to result[j, v].
Value decay_apply(const Value& p, const Value& x, const Value& g, const ir::Attrs& attrs) {
    const std::int64_t tokens = g.shape[0], width = g.shape[1];
    Value result = zeros({tokens, width});
    for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t v = 0; v < width; ++v) {
            double total = 0;
            for (std::int64_t j = i - (attrs.exclusive ? 1 : 0); j >= 0; --j) {
                const std::int64_t from = attrs.reverse ? i : j, to = attrs.reverse ? j : i;
                result.data[at(to * width + v)] +=
                    p.data[at(i * tokens + j)] * x.data[at(from * width + v)] * std::exp(total);
                total += g.data[at(j * width + v)];
            }
        }
    return result;
}

const Value& lookup(const Bindings& params, const std::string& name) {
    const auto it = params.find(name);
    if (it == params.end()) throw InternalError(fmt::format("interp: no value for parameter '{}'", name));
    return it->second;
}

const Value& parameter(const Op& op, const Bindings& params, const Sizes& sizes) {
    const Value& value = lookup(params, binding_name(op.attrs.name, op.attrs.role));
    if (const Extents wanted = concrete(op.type.shape, sizes); value.shape != wanted)
        throw InternalError(fmt::format("interp: parameter '{}' is [{}], expected [{}]", op.attrs.name,
                                        fmt::join(value.shape, ", "), fmt::join(wanted, ", ")));
    return value;
}

Value part_of_parameter(const Op& op, const Bindings& params, const Sizes& sizes) {
    Value value = lookup(params, binding_name(op.attrs.name, op.attrs.role));
    const Extents shape = concrete(op.type.shape, sizes);
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
        value = slice(value, static_cast<std::int64_t>(axis), op.attrs.at[axis], 1, shape[axis]);
    return value;
}

struct Evaluation {
    const ir::Function& fn;
    const Bindings& params;
    const Sizes& sizes;
    std::deque<Value> made = {};            ///< that stay where they are
    std::vector<const Value*> values = {};  ///< of each op: made here, given, or another op's

    [[nodiscard]] const Value& arg(const Op& op, std::size_t i) const { return *values[at(op.args[i])]; }
    [[nodiscard]] const Value* passed_on(const Op& op) const;
    [[nodiscard]] Value leaf(const Op& op) const;
    [[nodiscard]] Value run(const Op& op) const;
};

/// The value of an op that makes none of its own; nullptr of the others.
const Value* Evaluation::passed_on(const Op& op) const {
    if (op.code == Opcode::Param) return op.attrs.at.empty() ? &parameter(op, params, sizes) : nullptr;
    if (op.code == Opcode::PrevToken)  // of a Param
        return &lookup(params, binding_name(fn.op(op.args[0]).attrs.name, ir::Role::Shifted));
    return ir::is_same(op.code) ? &arg(op, 0) : nullptr;
}

Value Evaluation::leaf(const Op& op) const {
    if (op.code == Opcode::Param) return part_of_parameter(op, params, sizes);
    if (op.code == Opcode::Identity) return identity(concrete(op.type.shape, sizes));
    if (op.code == Opcode::Arange) return arange(concrete(op.type.shape, sizes)[0]);
    if (op.code == Opcode::Size) {
        const Dim size = op.attrs.count * Dim(op.attrs.name);
        return scalar(static_cast<double>(concrete({size}, sizes)[0]));
    }
    return expand(scalar(op.attrs.value), concrete(op.type.shape, sizes));  // a Constant
}

Value Evaluation::run(const Op& op) const {
    const ir::Attrs& attrs = op.attrs;
    const auto in = [&](std::size_t i) -> const Value& { return arg(op, i); };
    switch (op.code) {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc)
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) \
    case Opcode::Enum:                                      \
        return map(in(0), [](double x) { return formula; });
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) \
    case Opcode::Enum:                                       \
        return map(in(0), in(1), [](double a, double b) { return formula; });
#define FORGE_COMPARE(Enum, name, formula, cost, doc) \
    case Opcode::Enum:                                \
        return map(in(0), in(1), [](double a, double b) { return (formula) ? 1.0 : 0.0; });
#include "forge/ops.def"
        case Opcode::Constant:
        case Opcode::Identity:
        case Opcode::Arange:
        case Opcode::Size:
        case Opcode::Param:
            return leaf(op);
        case Opcode::PrevToken:
        case Opcode::To:
        case Opcode::CacheResult:
        case Opcode::Copy:
            break;  // passed_on
        case Opcode::Where:
            return where(in(0), in(1), in(2));
        case Opcode::Sum:
            return select(cumsum(in(0), attrs.dim, false, false), attrs.dim, -1);
        case Opcode::Amax:
            return amax(in(0), attrs.dim);
        case Opcode::Cumsum:
            return cumsum(in(0), attrs.dim, attrs.reverse, attrs.exclusive);
        case Opcode::Cumprod:
            return cumprod(in(0), attrs.dim);
        case Opcode::LinearScan:
            return linear_scan(in(0), in(1), attrs.reverse, attrs.exclusive);
        case Opcode::LinearScanFrom:
            return linear_scan_from(in(0), in(1), in(2));
        case Opcode::L2norm:
            return l2norm(in(0), attrs.dim, attrs.value);
        case Opcode::Softmax:
            return softmax(in(0), attrs.dim);
        case Opcode::Permute:
            return permute(in(0), attrs.perm);
        case Opcode::Unsqueeze:
            return unsqueeze(in(0), attrs.dim);
        case Opcode::Squeeze:
            return squeeze(in(0), attrs.dim);
        case Opcode::Select:
            return select(in(0), attrs.dim, attrs.start);
        case Opcode::Slice:
            return slice(in(0), attrs.dim, attrs.start, attrs.step, attrs.length);
        case Opcode::Part:
            return part(in(0), attrs.dim, attrs.start, attrs.count);
        case Opcode::Concat:
        case Opcode::Interleave: {
            std::vector<Value> parts;
            for (std::size_t i = 0; i < op.args.size(); ++i) parts.push_back(in(i));
            return joined(parts, attrs.dim, op.code == Opcode::Interleave);
        }
        case Opcode::RepeatInterleave:
            return repeat_interleave(in(0), attrs.dim, attrs.count);
        case Opcode::Expand:
            return expand(in(0), concrete(op.type.shape, sizes));
        case Opcode::Tril:
            return triangle(in(0), true, attrs.diagonal);
        case Opcode::Triu:
            return triangle(in(0), false, attrs.diagonal);
        case Opcode::Inverse:
            return unit_lower_inverse(in(0));
        case Opcode::Matmul:
        case Opcode::MatmulOutFp32:
            return product(in(0), in(1), attrs);
        case Opcode::MatmulAdd:
            return map(in(2), product(in(0), in(1), attrs), std::plus<>());
        case Opcode::MatmulSub:
            return map(in(2), product(in(0), in(1), attrs), std::minus<>());
        case Opcode::DecayMask:
            return decay_product(in(0), attrs.exclusive, [](std::int64_t, std::int64_t) { return 1.0; });
        case Opcode::DecayRows:
            return map(in(2),
                       map(in(0), cumsum(in(1), 0, attrs.reverse, attrs.exclusive),
                           [](double x, double g) { return x * std::exp(g); }),
                       std::multiplies<>());
        case Opcode::DecayApply:
            return decay_apply(in(0), in(1), in(2), attrs);
        case Opcode::DecayMatmul:
            return decay_product(in(2), attrs.exclusive,
                                 [&](std::int64_t i, std::int64_t j) { return in(0).data[at(i)] * in(1).data[at(j)]; });
    }
    throw InternalError(fmt::format("interp: no rule for {}", ir::info(op.code).name));
}

}  // namespace

std::string binding_name(const std::string& name, ir::Role role) {
    switch (role) {
        case ir::Role::Input:
        case ir::Role::Head:
        case ir::Role::Scalar:
        case ir::Role::Mask:
        case ir::Role::State:
            return name;
        case ir::Role::Shifted:
            return name + "@prev";
        case ir::Role::Chunk:
            return name + "@chunk";
        case ir::Role::Cached:
            return name + "@cached";
        case ir::Role::Spill:
            return name + "@spill";
        case ir::Role::Ones:
            return name + "@ones";
        case ir::Role::Eye:
            return name + "@eye";
        case ir::Role::Before:
            return name + "@before";
        case ir::Role::After:
            return name + "@after";
    }
    throw InternalError("interp: unknown role");
}

std::vector<std::int64_t> concrete(const Shape& shape, const Sizes& sizes) {
    Extents result;
    for (const Dim& dim : shape) {
        if (!dim.is_constant() && !sizes.contains(dim.symbol))
            throw InternalError(fmt::format("interp: no size for '{}'", dim.symbol));
        result.push_back(dim.is_constant() ? dim.factor : dim.factor * sizes.at(dim.symbol));
    }
    return result;
}

std::vector<Value> evaluate(const ir::Function& fn, const Bindings& params, const Sizes& sizes, const Touch& touch) {
    Evaluation evaluation{fn, params, sizes};
    evaluation.values.reserve(fn.ops.size());
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const Value* const passed = evaluation.passed_on(fn.op(v));
        if (passed == nullptr || touch) {
            Value& made = evaluation.made.emplace_back(passed == nullptr ? evaluation.run(fn.op(v)) : *passed);
            if (touch) touch(fn, v, made);
            evaluation.values.push_back(&made);
        } else {
            evaluation.values.push_back(passed);
        }
    }
    std::vector<Value> results;
    for (const ir::Result& r : fn.results) results.push_back(*evaluation.values[at(r.value)]);
    return results;
}

}  // namespace forge::interp
