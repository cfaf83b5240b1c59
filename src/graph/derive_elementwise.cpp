// h' = d ∘ h + x: a scan over the tokens of the chunk, and what is left of the state before it.
#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/derive_chunk.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

[[noreturn]] void refuse_elementwise(const std::string& state, const Op& op) {
    throw CompileError(
        Diagnostic{fmt::format("derive: the state '{}' has no chunk form: {} is not affine in it, or mixes "
                               "its elements",
                               state, ir::info(op.code).name),
                   "h' = d * h + x with d and x that do not read it", ir::info(op.code).name, op.where,
                   "write the phases chunk, decay and merge by hand, or a step of that form, or have it run token by "
                   "token (sequential)"});
}

}  // namespace

ElementwiseChunk::ElementwiseChunk(const ir::Function& step, ChunkWriter& out, KnownValues& known,
                                   const ir::StateDecl& state, ValueId after)
    : step_(step), out_(out), known_(known), state_(state) {
    before_ = out_.param(state.name, ir::Role::State, state.type, state.where);
    for (std::size_t axis = state.type.shape.size(); axis-- > 0;)
        if (state.type.shape[axis] == Dim(1))
            before_ = out_.at(Opcode::Squeeze, before_, static_cast<std::int64_t>(axis));
    for (const int axis : wide_axes(state.type.shape))
        core_.push_back(state.type.shape[static_cast<std::size_t>(axis)]);
    const Affine all = affine(after);
    Shape rows = core_;
    rows.insert(rows.begin(), Dim(ir::kChunkSymbol));
    const auto expanded = [&](TokenRow x) {
        if (!x.tokens) return out_.expand(x.v, rows);
        while (out_.type(x.v).rank() < static_cast<int>(rows.size())) x.v = out_.unsqueeze(x.v, out_.type(x.v).rank());
        return out_.expand(x.v, rows);
    };
    if (all.addend.v != kNone) x_ = expanded(out_.masked(all.addend, 0));
    const TokenRow d = all.factor.v != kNone ? all.factor : TokenRow{out_.constant(0), false};
    if (out_.is_number(d.v, 1)) return;
    if (const auto log = logarithm(out_, d)) {
        log_ = out_.per_token(out_.masked(*log, 0));
        d_ = expanded({out_.exp(log_), true});
        log_ = expanded({log_, true});
    } else {
        d_ = expanded(out_.masked(d, 1));
    }
}

TokenRow ElementwiseChunk::apply(Opcode code, TokenRow a, ValueId a_like, TokenRow b, ValueId b_like, const Op& op) {
    const ir::Function none;
    return TokenRows(none, out_)
        .pointwise(code, {a, b}, {step_.op(a_like).type.shape, step_.op(b_like).type.shape}, op.type.shape, {},
                   op.where);
}

/// With axes of size 1 where the result has others.
TokenRow ElementwiseChunk::aligned(TokenRow x, const Shape& shape, const Shape& result) {
    const std::vector<int> wide = wide_axes(result);
    std::vector<int> own = wide_axes(shape);
    for (int& axis : own) axis += static_cast<int>(result.size() - shape.size());
    if (own.empty() && !x.tokens) return x;
    for (std::size_t w = 0; w < wide.size(); ++w)
        if (std::count(own.begin(), own.end(), wide[w]) == 0)
            x.v = out_.unsqueeze(x.v, static_cast<std::int64_t>(w) + (x.tokens ? 1 : 0));
    return x;
}

ElementwiseChunk::Affine ElementwiseChunk::affine(ValueId v) {
    return affine_.at(v, [&] { return affine_anew(v); });
}

ElementwiseChunk::Affine ElementwiseChunk::affine_anew(ValueId v) {
    const Op& op = step_.op(v);
    if (known_.is_known(v)) return {{}, known_.known(v)};
    if (op.code == Opcode::Param) return {{out_.constant(1), false}, {}};
    const auto one = [&](TokenRow x) { return x.v != kNone && out_.is_number(x.v, 1); };
    const auto sum = [&](TokenRow a, TokenRow b, Opcode code) -> TokenRow {
        const auto alone = [&](TokenRow x, std::size_t i) {
            return x.v == kNone ? x : aligned(x, step_.op(op.args[i]).type.shape, op.type.shape);
        };
        if (b.v == kNone) return alone(a, 0);
        if (a.v == kNone) return alone(code == Opcode::Sub ? TokenRow{out_.neg(b.v), b.tokens} : b, 1);
        return apply(code, a, op.args[0], b, op.args[1], op);
    };
    switch (op.code) {
        case Opcode::Add:
        case Opcode::Sub: {
            const Affine a = affine(op.args[0]), b = affine(op.args[1]);
            if (step_.op(op.args[0]).type.shape != step_.op(op.args[1]).type.shape &&
                ((a.factor.v != kNone && step_.op(op.args[0]).type.shape != op.type.shape) ||
                 (b.factor.v != kNone && step_.op(op.args[1]).type.shape != op.type.shape)))
                break;
            return {sum(a.factor, b.factor, op.code), sum(a.addend, b.addend, op.code)};
        }
        case Opcode::Neg: {
            const Affine a = affine(op.args[0]);
            const auto negated = [&](TokenRow x) { return x.v == kNone ? x : TokenRow{out_.neg(x.v), x.tokens}; };
            return {negated(a.factor), negated(a.addend)};
        }
        case Opcode::Mul:
        case Opcode::Div:
            for (const std::size_t i : {0U, 1U}) {
                if (known_.is_known(op.args[i]) || !known_.is_known(op.args[1 - i])) continue;
                if (op.code == Opcode::Div && i == 1) break;
                const Affine a = affine(op.args[i]);
                const TokenRow f = known_.known(op.args[1 - i]);
                const auto by = [&](TokenRow x) {
                    if (x.v == kNone || (one(x) && op.code == Opcode::Mul))
                        return x.v == kNone ? x : aligned(f, step_.op(op.args[1 - i]).type.shape, op.type.shape);
                    return apply(op.code, x, op.args[i], f, op.args[1 - i], op);
                };
                return {by(a.factor), by(a.addend)};
            }
            break;
        case Opcode::Where: {
            if (!known_.is_known(op.args[0])) break;
            const Affine a = affine(op.args[1]), b = affine(op.args[2]);
            const ir::Function none;
            const auto pick = [&](TokenRow x, TokenRow y) {
                const TokenRow zero{out_.constant(0), false};
                const auto shape = [&](TokenRow row, std::size_t i) {
                    return out_.fn.op(row.v).code == Opcode::Constant ? Shape{} : step_.op(op.args[i]).type.shape;
                };
                x = x.v == kNone ? zero : x, y = y.v == kNone ? zero : y;
                return TokenRows(none, out_)
                    .pointwise(Opcode::Where, {known_.known(op.args[0]), x, y},
                               {step_.op(op.args[0]).type.shape, shape(x, 1), shape(y, 2)}, op.type.shape, {},
                               op.where);
            };
            return {pick(a.factor, b.factor), pick(a.addend, b.addend)};
        }
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return affine(op.args[0]);
        default:
            break;
    }
    refuse_elementwise(state_.name, op);
}

/// The state from zeros: h of the chunk's tokens alone.
ValueId ElementwiseChunk::within(bool exclusive) {
    if (x_ == kNone) return kNone;
    if (!decays()) return out_.cumsum(x_, exclusive);
    const ValueId scan = out_.emit(Opcode::LinearScan, {d_, x_});
    return exclusive ? one_later(scan) : scan;
}

/// Rows moved to the token after: by a matrix of zeros and ones, since phases have no other way.
ValueId ElementwiseChunk::one_later(ValueId rows) {
    const Dim chunk(ir::kChunkSymbol);
    if (core_.size() > 1)
        throw CompileError(
            Diagnostic{fmt::format("derive: the state '{}' is read before the token's own update, element "
                                   "by element",
                                   state_.name),
                       "reads of the state after the token", "", state_.where, ""});
    const auto below = [&](std::int64_t diagonal) {
        Attrs attrs;
        attrs.diagonal = diagonal;
        return out_.emit(Opcode::Tril, {out_.expand(out_.constant(1), {chunk, chunk})}, attrs);
    };
    const ValueId shift = out_.sub(below(-1), below(-2));
    if (!core_.empty()) return out_.matmul(shift, rows);
    return out_.at(Opcode::Squeeze, out_.matmul(shift, out_.unsqueeze(rows, 1)), 1);
}

ValueId ElementwiseChunk::decay_from_start(bool exclusive) {
    if (log_ != kNone) return out_.exp(out_.cumsum(log_, exclusive));
    if (!exclusive) return out_.at(Opcode::Cumprod, d_, 0);
    // The product of those before: a scan that begins with 1 and is multiplied from then on.
    throw CompileError(Diagnostic{
        fmt::format("derive: the state '{}' before a token is read, and decays by a factor that may be negative",
                    state_.name),
        "a factor that is not negative: exp(g), sigmoid(x), an input, or one whose range is declared", "", state_.where,
        "write decays as exp(g), or declare the ranges of inputs"});
}

TokenRow ElementwiseChunk::after() {
    const ValueId carried = decays() ? out_.mul(decay_from_start(false), before_) : before_;
    const ValueId sum = out_.add(within(false), carried);
    return {sum, out_.type(sum).rank() > static_cast<int>(core_.size())};
}

TokenRow ElementwiseChunk::before() {
    const ValueId carried = decays() ? out_.mul(decay_from_start(true), before_) : before_;
    const ValueId sum = out_.add(within(true), carried);
    return {sum, out_.type(sum).rank() > static_cast<int>(core_.size())};
}

ChunkResult ElementwiseChunk::result() {
    ValueId next = before_, contribution = kNone;
    if (x_ != kNone) contribution = decays() ? out_.at(Opcode::Select, within(false), 0, -1) : out_.sum(x_);
    if (decays())
        next = out_.mul(next, log_ != kNone ? out_.exp(out_.sum(log_))
                                            : out_.at(Opcode::Select, out_.at(Opcode::Cumprod, d_, 0), 0, -1));
    if (contribution != kNone) contribution = as_declared(out_, contribution, state_.type.shape);
    return {out_.add(as_declared(out_, next, state_.type.shape), contribution), contribution};
}

}  // namespace forge::graph
