// m' = max(f + m, x): what stabilises exponentials. Sums of f between two tokens are summed, never subtracted, so that
// a gate of -inf forgets all before it.
#include <limits>

#include "forge/error.h"
#include "graph/derive_chunk.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

[[noreturn]] void refuse_maximum(const std::string& state, const Op& op) {
    throw CompileError(Diagnostic{"derive: the state '" + state + "' has no chunk form: it is no running maximum",
                                  "m' = maximum(f + m, x) of one number per head, with f and x that do not read it",
                                  ir::info(op.code).name, op.where, ""});
}

}  // namespace

MaximumChunk::MaximumChunk(const ir::Function& step, ChunkWriter& out, KnownValues& known, const ir::StateDecl& state,
                           ValueId after)
    : step_(step), out_(out), known_(known), state_(state) {
    if (!wide_axes(state.type.shape).empty()) refuse_maximum(state.name, step.op(after));
    before_ = out_.param(state.name, ir::Role::State, state.type, state.where);
    for (std::size_t axis = state.type.shape.size(); axis-- > 0;)
        before_ = out_.at(Opcode::Squeeze, before_, static_cast<std::int64_t>(axis));
    const Shifted all = shifted(after);
    if (all.floor.v == kNone) refuse_maximum(state.name, step.op(after));
    floor_ = out_.per_token(out_.masked(all.floor, kLowest));
    if (all.shift.v != kNone) shift_ = out_.per_token(out_.masked(all.shift, 0));
}

/// max(shift + m, floor), of which either may be kNone: 0, or lower than everything.
MaximumChunk::Shifted MaximumChunk::shifted(ValueId v) {
    const Op& op = step_.op(v);
    const auto known = [&](std::size_t i) { return known_.is_known(op.args[i]); };
    switch (op.code) {
        case Opcode::Param:
            return {};
        case Opcode::Maximum:
            for (const std::size_t i : {0U, 1U}) {
                if (known(i) || !known(1 - i)) continue;
                Shifted all = shifted(op.args[i]);
                const TokenRow other = known_.known(op.args[1 - i]);
                all.floor = all.floor.v == kNone ? other : both(Opcode::Maximum, all.floor, other, op);
                return all;
            }
            break;
        case Opcode::Add:
        case Opcode::Sub:
            for (const std::size_t i : {0U, 1U}) {
                if (known(i) || !known(1 - i) || (op.code == Opcode::Sub && i == 1)) continue;
                Shifted all = shifted(op.args[i]);
                const TokenRow more = known_.known(op.args[1 - i]);
                all.shift = plus(out_, all.shift, more, op.code == Opcode::Sub);
                if (all.floor.v != kNone) all.floor = both(op.code, all.floor, more, op);
                return all;
            }
            break;
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
            return shifted(op.args[0]);
        default:
            break;
    }
    refuse_maximum(state_.name, op);
}

TokenRow MaximumChunk::both(Opcode code, TokenRow a, TokenRow b, const Op& op) {
    const ir::Function none;
    return TokenRows(none, out_).pointwise(code, {a, b}, {{}, {}}, {}, {}, op.where);
}

/// The maximum of the chunk's tokens alone, up to every token: [C].
ValueId MaximumChunk::within(bool exclusive) {
    const Dim chunk(ir::kChunkSymbol);
    const Shape pairs = {chunk, chunk};
    ValueId terms = out_.expand(out_.unsqueeze(floor_, 0), pairs);
    if (shift_ != kNone) {
        const ValueId later = out_.tril(out_.expand(out_.unsqueeze(shift_, 1), pairs), true);
        terms = out_.add(out_.cumsum(later, exclusive), terms);  // the sum of f after token j, up to i
    }
    Attrs attrs;
    attrs.dtype = DType::Bool;
    const ValueId there = out_.emit(Opcode::To, {out_.tril(out_.expand(out_.constant(1), pairs), exclusive)}, attrs);
    return out_.at(Opcode::Amax, out_.emit(Opcode::Where, {there, terms, out_.constant(kLowest)}), 1);
}

TokenRow MaximumChunk::values(bool exclusive) {
    const ValueId carried = shift_ == kNone ? before_ : out_.add(out_.cumsum(shift_, exclusive), before_);
    return {out_.emit(Opcode::Maximum, {within(exclusive), carried}), true};
}

ChunkResult MaximumChunk::result() {
    const ValueId own = out_.at(Opcode::Select, within(false), 0, -1);
    const ValueId carried = shift_ == kNone ? before_ : out_.add(out_.sum(shift_), before_);
    const ValueId contribution = as_declared(out_, own, state_.type.shape);
    return {out_.emit(Opcode::Maximum, {as_declared(out_, carried, state_.type.shape), contribution}), contribution};
}

}  // namespace forge::graph
