// Logarithms of decays: of exp(g) it is g, of products a sum; of what cannot be negative, log. Sums of them over tokens
// are what stabilize makes safe.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/derive_forms.h"
#include "ir/infer.h"
#include "ir/known.h"

namespace forge::graph {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

Range bounds(const ChunkWriter& out, ValueId v, ir::Known<Range>& known);

Range bounds_of_op(const ChunkWriter& out, const Op& op, ir::Known<Range>& known) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const auto arg = [&](std::size_t i) { return bounds(out, op.args[i], known); };
    switch (op.code) {
        case Opcode::Constant:
            return {op.attrs.value, op.attrs.value};
        case Opcode::Param: {
            if (op.attrs.role == Role::Mask) return {0, 1};
            const ir::InputDecl* in = out.definition().input(op.attrs.name);
            return in && in->range ? *in->range : Range{-kInf, kInf};
        }
        case Opcode::Exp:
        case Opcode::Exp2:
        case Opcode::Softplus:
        case Opcode::Abs:
        case Opcode::Relu:
        case Opcode::Sqrt:
        case Opcode::Rsqrt: {
            const bool decay = (op.code == Opcode::Exp || op.code == Opcode::Exp2) && arg(0).high <= 0;
            return {0, decay ? 1 : kInf};
        }
        case Opcode::Sigmoid:
            return {0, 1};
        case Opcode::Logsigmoid:
            return {-kInf, 0};
        case Opcode::Neg:
            return {-arg(0).high, -arg(0).low};
        case Opcode::Add:
            return {arg(0).low + arg(1).low, arg(0).high + arg(1).high};
        case Opcode::Sub:
            return {arg(0).low - arg(1).high, arg(0).high - arg(1).low};
        case Opcode::Mul: {
            const Range a = arg(0), b = arg(1);
            if (op.args[0] == op.args[1]) return {0, kInf};
            if (a.low >= 0 && b.low >= 0) return {a.low * b.low, a.high > 0 && b.high > 0 ? a.high * b.high : 0};
            return {-kInf, kInf};
        }
        case Opcode::Div:
            return arg(0).low >= 0 && arg(1).low >= 0 ? Range{0, kInf} : Range{-kInf, kInf};
        case Opcode::Minimum:
            return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
        case Opcode::Maximum:
            return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
        case Opcode::Where:
            return {std::min(arg(1).low, arg(2).low), std::max(arg(1).high, arg(2).high)};
        case Opcode::Amax:
            return arg(0);
        default:
            if (op.code == Opcode::To || op.code == Opcode::PrevToken || op.code == Opcode::Expand ||
                ir::is_view(op.code))
                return arg(0);
            return {-kInf, kInf};
    }
}

Range bounds(const ChunkWriter& out, ValueId v, ir::Known<Range>& known) {
    return known.at(v, [&] { return bounds_of_op(out, out.fn.op(v), known); });
}

/// The numbers that a value of the chunk's function may be.
Range bounds(const ChunkWriter& out, ValueId v) {
    ir::Known<Range> known;
    return bounds(out, v, known);
}

/// An input as it came, whose sign nobody declared.
bool is_undeclared_input(const ChunkWriter& out, ValueId v) {
    const Op& op = out.fn.op(v);
    if (op.code == Opcode::Param) {
        const ir::InputDecl* in = out.definition().input(op.attrs.name);
        return in && !in->range;
    }
    const bool same = op.code == Opcode::To || op.code == Opcode::PrevToken || op.code == Opcode::Expand;
    return (same || ir::is_view(op.code)) && is_undeclared_input(out, op.args[0]);
}

/// The logarithms of values, each worked out once.
class Logarithms {
  public:
    explicit Logarithms(ChunkWriter& out) : out_(out) {}

    ValueId of(ValueId v) {
        return known_.at(v, [&] { return work_out(v); });
    }

  private:
    ValueId work_out(ValueId v) {
        const Op op = out_.fn.op(v);  // a copy: the function grows
        const auto log_of = [&](std::size_t i) { return of(op.args[i]); };
        const auto both = [&](Opcode code) -> ValueId {
            const ValueId a = log_of(0), b = log_of(1);
            return a == ir::kNoValue || b == ir::kNoValue ? ir::kNoValue : out_.emit(code, {a, b}, {}, op.where);
        };
        const auto scaled = [&](double by) -> ValueId {
            const ValueId a = log_of(0);
            return a == ir::kNoValue ? a : out_.emit(Opcode::Mul, {a, out_.constant(by)}, {}, op.where);
        };
        switch (op.code) {
            case Opcode::Exp:
                return op.args[0];
            case Opcode::Exp2:
                return out_.emit(Opcode::Mul, {op.args[0], out_.constant(std::numbers::ln2)}, {}, op.where);
            case Opcode::Sigmoid:
                return out_.emit(Opcode::Logsigmoid, {op.args[0]}, {}, op.where);
            case Opcode::Mul:
                if (const ValueId sum = both(Opcode::Add); sum != ir::kNoValue) return sum;
                break;
            case Opcode::Div:
                return both(Opcode::Sub);
            case Opcode::Sqrt:
                return scaled(0.5);
            case Opcode::Rsqrt:
                return scaled(-0.5);
            case Opcode::Reciprocal:
                return scaled(-1);
            case Opcode::Pow:
                if (out_.fn.op(op.args[1]).code == Opcode::Constant) return scaled(out_.fn.op(op.args[1]).attrs.value);
                break;
            case Opcode::Sub:
                if (out_.is_number(op.args[0], 1) &&
                    out_.fn.op(op.args[1]).code == Opcode::Sigmoid)  // 1 - σ(x) = σ(-x)
                    return out_.emit(Opcode::Logsigmoid, {out_.neg(out_.fn.op(op.args[1]).args[0])}, {}, op.where);
                break;
            case Opcode::Constant:
                return op.attrs.value >= 0 ? out_.constant(std::log(op.attrs.value)) : ir::kNoValue;
            case Opcode::Abs:  // of what is not negative; else the logarithm of this itself, below
                if (bounds(out_, op.args[0]).low >= 0) return log_of(0);
                break;
            case Opcode::Amax: {
                const ValueId a = bounds(out_, op.args[0]).low >= 0 ? log_of(0) : ir::kNoValue;
                return a == ir::kNoValue ? a : out_.emit(op.code, {a}, op.attrs, op.where);
            }
            case Opcode::To:
            case Opcode::Unsqueeze:
            case Opcode::Squeeze:
            case Opcode::Permute:
            case Opcode::Slice:
            case Opcode::Select:
            case Opcode::Part: {
                const ValueId a = log_of(0);
                return a == ir::kNoValue ? a : out_.emit(op.code, {a}, op.attrs, op.where);
            }
            case Opcode::Expand: {
                const ValueId a = log_of(0);
                return a == ir::kNoValue ? a : out_.expand(a, op.type.shape);
            }
            default:
                break;
        }
        if (bounds(out_, v).low >= 0 || is_undeclared_input(out_, v)) return out_.emit(Opcode::Log, {v}, {}, op.where);
        return ir::kNoValue;
    }

    ChunkWriter& out_;
    ir::Known<ValueId> known_;
};

}  // namespace

std::optional<TokenRow> logarithm(ChunkWriter& out, TokenRow factor) {
    const ValueId log = Logarithms(out).of(factor.v);
    return log == ir::kNoValue ? std::nullopt : std::optional(TokenRow{log, factor.tokens});
}

}  // namespace forge::graph
