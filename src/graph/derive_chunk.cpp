#include "graph/derive_chunk.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"

namespace forge::graph {
namespace {

using ir::Opcode;
using ir::ValueId;
using Axis = Decay::Axis;

std::vector<ValueId> logs_along(const Scale& scale, Axis axis) {
    std::vector<ValueId> logs;
    for (const Decay& d : scale)
        if (d.axis == axis) logs.push_back(d.log.v);
    return logs;
}

}  // namespace

ValueId as_declared(ChunkWriter& out, ValueId v, const Shape& shape, std::int64_t first) {
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
        if (shape[axis] == Dim(1)) v = out.unsqueeze(v, static_cast<std::int64_t>(axis) + first);
    return v;
}

MatrixChunk::MatrixChunk(ChunkWriter& out, const ir::StateDecl& state, int key_axis,
                         std::shared_ptr<const StateForm> after)
    : out_(out),
      state_(state),
      key_axis_(key_axis),
      vector_(wide_axes(state.type.shape).size() == 1),
      after_(std::move(after)) {
    if (after_->state.empty()) {  // replaced: what was there decays to nothing
        StateForm form = *after_;
        const TokenRow zero{out_.constant(0), false};
        form.state = state.name;
        form.scale = {{Axis::None, zero, *logarithm(out_, zero)}};
        after_ = std::make_shared<const StateForm>(std::move(form));
    }
    before_ = out_.param(state.name, ir::Role::State, state.type, state.where);
    for (std::size_t axis = state.type.shape.size(); axis-- > 0;)
        if (state.type.shape[axis] == Dim(1))
            before_ = out_.at(Opcode::Squeeze, before_, static_cast<std::int64_t>(axis));
    if (vector_) before_ = out_.unsqueeze(before_, 1);
    if (key_axis_ == 1) before_ = out_.transpose(before_);
    g_number_ = gate(Axis::None), g_key_ = gate(Axis::Key), g_value_ = gate(Axis::Value);
    collect(*after_);
    for (const Outer& o : after_->outers) {
        Write w{o, kNone, kNone, -1};
        if (o.is_known()) {
            w.value = known_rows(o.value->known);
        } else {
            const auto it =
                std::find_if(unknowns_.begin(), unknowns_.end(), [&](const auto& u) { return u == o.value; });
            w.unknown = static_cast<int>(it - unknowns_.begin());
        }
        // Padding must write nothing.
        const bool zero = out_.padding(o.key.v) == 0.0 || (w.unknown < 0 && out_.padding(o.value->known.v) == 0.0);
        w.key = out_.per_token(zero ? o.key : out_.masked(o.key, 0));
        writes_.push_back(std::move(w));
    }
    solve();
}

ValueId MatrixChunk::gate(Axis axis) {
    TokenRow sum;
    for (const Decay& d : after_->scale)
        if (d.axis == axis) sum = plus(out_, sum, d.log);
    return sum.v == kNone ? kNone : out_.per_token(out_.masked(sum, 0));
}

void MatrixChunk::collect(const StateForm& form) {
    for (const Outer& o : form.outers) {
        if (o.is_known() || std::count(unknowns_.begin(), unknowns_.end(), o.value) > 0) continue;
        for (const Read& r : o.value->reads) collect(*r.of);
        unknowns_.push_back(o.value);
    }
}

ValueId MatrixChunk::known_rows(TokenRow x) {
    const ValueId rows = out_.per_token(x);
    return vector_ ? out_.unsqueeze(rows, 1) : rows;
}

ValueId MatrixChunk::dot(ValueId a, ValueId b) { return out_.unsqueeze(out_.sum(out_.mul(a, b), 1), 1); }

/// The sum of the logarithms before a read: all of the token's own, none of them, or some.
ValueId MatrixChunk::from_start(const StateForm& form, Axis axis, ValueId total) {
    if (total == kNone) {
        if (!logs_along(form.scale, axis).empty() && !form.state.empty())
            throw CompileError(Diagnostic{
                fmt::format("derive: the state '{}' is read after a decay that it does not keep", state_.name),
                "reads of the state as it is on the way from the state before to that after the token", "", form.where,
                "multiply what was read instead"});
        return kNone;
    }
    const ValueId G = out_.cumsum(total);
    const std::vector<ValueId> own = logs_along(form.scale, axis), all = logs_along(after_->scale, axis);
    if (own == all) return G;
    const ValueId before = out_.sub(G, total);
    TokenRow partial;
    for (const Decay& d : form.scale)
        if (d.axis == axis) partial = plus(out_, partial, d.log);
    return partial.v == kNone ? before : out_.add(before, out_.per_token(partial));
}

MatrixChunk::Exponents MatrixChunk::exponents(const StateForm& form) {
    return {from_start(form, Axis::None, g_number_), from_start(form, Axis::Key, g_key_),
            from_start(form, Axis::Value, g_value_)};
}

ValueId MatrixChunk::decayed_key(ValueId key, const Exponents& at, bool number) {
    if (at.key != kNone) key = out_.mul(key, out_.exp(at.key));
    if (number && at.number != kNone) key = out_.mul(key, out_.unsqueeze(out_.exp(at.number), 1));
    return key;
}

/// [C, rows C]: every token's key with those of all writes, and the decay in between. Under a triangle only, which
/// those of several rows are under, where numbers decay: `strict`, without the token itself.
ValueId MatrixChunk::scores(ValueId key, const Exponents& at, ValueId write_key, std::int64_t rows, bool strict) {
    const ValueId left = decayed_key(key, at, false);
    const ValueId right = g_key_ == kNone ? write_key : out_.mul(write_key, out_.exp(out_.neg(out_.cumsum(g_key_))));
    const ValueId products = out_.matmul(left, out_.transpose(right));
    if (g_number_ == kNone) return products;
    const ValueId decays = between(at);
    return out_.mul(products, rows == 1 ? decays : out_.repeat(out_.tril(decays, strict), rows, 1));
}

ValueId MatrixChunk::between(const Exponents& at) {
    return out_.exp(out_.sub(out_.unsqueeze(at.number, 1), out_.unsqueeze(out_.cumsum(g_number_), 0)));
}

ValueId MatrixChunk::applied(ValueId scores, ValueId values) {
    if (g_value_ != kNone) return out_.matmul(scores, out_.mul(values, out_.exp(out_.neg(out_.cumsum(g_value_)))));
    return are_ones(values) ? out_.unsqueeze(out_.sum(scores, 1), 1) : out_.matmul(scores, values);
}

/// What vectors are written with: sums do for products with ones.
bool MatrixChunk::are_ones(ValueId values) const {
    const ir::Op& op = out_.fn.op(values);
    return vector_ && op.code == Opcode::Unsqueeze && out_.fn.op(op.args[0]).code == Opcode::Expand &&
           out_.is_number(out_.fn.op(op.args[0]).args[0], 1);
}

ValueId MatrixChunk::negative(TokenRow coefficient) {
    const TokenRow c = times(out_, coefficient, {out_.constant(-1), false});
    return c.v;
}

/// rows of a matrix times numbers of rows, or one number.
ValueId MatrixChunk::times_rows(ValueId matrix, ValueId rows) {
    if (out_.type(rows).rank() == 0) return out_.mul(matrix, rows);
    return out_.mul(matrix, out_.unsqueeze(rows, 1));
}

/// What one read yields, without the state before the chunk: writes of earlier tokens, and of this token before it.
ValueId MatrixChunk::sum_of_reads(const StateForm& form, ValueId key, bool known_only, bool strict) {
    const Exponents at = form.state.empty() ? Exponents{} : exponents(form);
    ValueId sum = kNone;
    if (!form.state.empty()) {
        ValueId rows = kNone;  // of all unknowns at once
        const bool together = !known_only && in_rows();
        for (const Write& w : writes_) {
            if (w.unknown >= 0 && (known_only || together)) {
                if (w.unknown >= 0 && together && rows == kNone) {
                    std::vector<ValueId> keys;
                    for (const Write& x : writes_)
                        if (x.unknown >= 0) keys.push_back(x.key);
                    const auto r = static_cast<std::int64_t>(keys.size());
                    ValueId s = scores(key, at, out_.interleave(keys), r, strict);
                    if (r == 1) s = out_.tril(s, strict);
                    else if (g_number_ == kNone)
                        s = out_.mul(s, out_.repeat(out_.tril(out_.expand(out_.constant(1), {Dim(ir::kChunkSymbol),
                                                                                             Dim(ir::kChunkSymbol)}),
                                                              strict),
                                                    r, 1));
                    rows = applied(s, updates_);
                    sum = out_.add(sum, rows);
                }
                continue;
            }
            const ValueId s = out_.tril(scores(key, at, w.key, 1), strict);
            sum = out_.add(sum, applied(s, w.unknown >= 0 ? value_of(w.outer) : w.value));
        }
    }
    if (!strict) return sum;
    for (const Outer& o : form.outers) {
        if (!o.is_known() && known_only) continue;
        ValueId values = value_of(o);
        if (at.value != kNone) values = out_.mul(values, out_.exp(out_.neg(at.value)));
        sum = out_.add(sum, out_.mul(dot(key, out_.per_token(o.key)), values));
    }
    return sum;
}

ValueId MatrixChunk::value_of(const Outer& outer) {
    if (outer.is_known()) return known_rows(outer.value->known);
    const auto r = static_cast<std::int64_t>(unknowns_.size());
    const auto it = std::find(unknowns_.begin(), unknowns_.end(), outer.value);
    if (it == unknowns_.end()) throw InternalError("derive: an update that was not solved for");
    return r == 1 ? updates_ : out_.at(Opcode::Slice, updates_, 0, it - unknowns_.begin(), r);
}

bool MatrixChunk::is_all(const StateForm& form) const {
    if (form.state != after_->state || form.scale != after_->scale || form.outers.size() != after_->outers.size())
        return false;
    return std::all_of(form.outers.begin(), form.outers.end(), [&](const Outer& o) {
        return std::any_of(after_->outers.begin(), after_->outers.end(), [&](const Outer& a) {
            return o.key.v == a.key.v &&
                   (o.is_known() ? a.is_known() && o.value->known.v == a.value->known.v : o.value == a.value);
        });
    });
}

TokenRow MatrixChunk::read(TokenRow key_row, const StateForm& form) {
    const ValueId key = out_.per_token(key_row);
    const Exponents at = form.state.empty() ? Exponents{} : exponents(form);
    ValueId sum = sum_of_reads(form, key, false, !is_all(form));
    if (!form.state.empty()) {
        ValueId carried = out_.matmul(decayed_key(key, at, false), before_);
        if (at.number != kNone) carried = out_.mul(carried, out_.unsqueeze(out_.exp(at.number), 1));
        sum = out_.add(sum, carried);
    }
    if (sum == kNone) sum = out_.mul(out_.per_token(key_row), out_.constant(0));
    if (at.value != kNone) sum = out_.mul(sum, out_.exp(at.value));
    return {vector_ ? out_.at(Opcode::Squeeze, sum, 1) : sum, true};
}

/// `read` with keys and values in each other's place.
TokenRow MatrixChunk::read_across(TokenRow values_row, const StateForm& form) {
    const bool strict = !is_all(form);
    ValueId values = out_.per_token(values_row), sum = kNone;
    const ValueId own = values;
    const auto back = [&](ValueId rows, ValueId g) {
        return g == kNone ? rows : out_.mul(rows, out_.exp(out_.neg(g)));
    };
    const auto running = [&](ValueId g) { return g == kNone ? kNone : out_.cumsum(g); };
    const Exponents at = form.state.empty() ? Exponents{} : exponents(form);
    if (!form.state.empty()) {
        if (at.value != kNone) values = out_.mul(values, out_.exp(at.value));
        for (const Write& w : writes_) {
            const ValueId written = back(value_of(w.outer), running(g_value_));
            ValueId weights = out_.matmul(values, out_.transpose(written));
            if (g_number_ != kNone) weights = out_.mul(weights, between(at));
            sum = out_.add(sum, out_.matmul(out_.tril(weights, strict), back(w.key, running(g_key_))));
        }
        ValueId carried = out_.matmul(values, out_.transpose(before_));
        if (at.number != kNone) carried = out_.mul(carried, out_.unsqueeze(out_.exp(at.number), 1));
        sum = out_.add(sum, carried);
    }
    if (strict)
        for (const Outer& o : form.outers)
            sum = out_.add(sum, out_.mul(dot(own, value_of(o)), back(out_.per_token(o.key), at.key)));
    if (sum == kNone) sum = out_.expand(out_.constant(0), {Dim(ir::kChunkSymbol), out_.type(before_).shape[0]});
    if (at.key != kNone) sum = out_.mul(sum, out_.exp(at.key));
    return {sum, true};
}

ValueId MatrixChunk::to_end(const Write& write) {
    ValueId key = write.key;
    const auto remaining = [&](ValueId g) { return out_.exp(out_.sub(out_.sum(g), out_.cumsum(g))); };
    if (g_key_ != kNone) key = out_.mul(key, remaining(g_key_));
    if (g_number_ != kNone) key = out_.mul(key, out_.unsqueeze(remaining(g_number_), 1));
    return key;
}

ChunkResult MatrixChunk::result() {
    ValueId contribution = kNone, end_keys = kNone;
    std::vector<ValueId> keys(unknowns_.size(), kNone);
    for (const Write& w : writes_) {
        if (w.unknown >= 0) {
            keys[static_cast<std::size_t>(w.unknown)] = out_.add(keys[static_cast<std::size_t>(w.unknown)], to_end(w));
            continue;
        }
        ValueId values = w.value;
        if (g_value_ != kNone) values = out_.mul(values, out_.exp(out_.sub(out_.sum(g_value_), out_.cumsum(g_value_))));
        const ValueId keys_at_end = to_end(w);
        contribution = out_.add(contribution, are_ones(values) ? out_.unsqueeze(out_.sum(keys_at_end), 1)
                                                               : out_.matmul(out_.transpose(keys_at_end), values));
    }
    if (std::any_of(keys.begin(), keys.end(), [](ValueId v) { return v != kNone; })) {
        for (ValueId& k : keys)
            if (k == kNone) k = out_.expand(out_.constant(0), {Dim(ir::kChunkSymbol), out_.type(before_).shape[0]});
        end_keys = out_.transpose(out_.interleave(keys));
        if (u_ != kNone) contribution = out_.add(contribution, out_.matmul(end_keys, u_));
    }
    ValueId next = before_;
    if (g_number_ != kNone) next = out_.mul(next, out_.exp(out_.sum(g_number_)));
    if (g_key_ != kNone) next = out_.mul(next, out_.unsqueeze(out_.exp(out_.sum(g_key_)), 1));
    if (g_value_ != kNone) next = out_.mul(next, out_.unsqueeze(out_.exp(out_.sum(g_value_)), 0));
    const auto shaped = [&](ValueId v) {
        if (v == kNone) return v;
        if (key_axis_ == 1) v = out_.transpose(v);
        if (vector_) v = out_.at(Opcode::Squeeze, v, 1);
        return as_declared(out_, v, state_.type.shape);
    };
    contribution = shaped(contribution);
    next = out_.add(shaped(next), contribution);
    if (end_keys != kNone && w_ != kNone)
        next = out_.sub(next, shaped(out_.matmul(end_keys, out_.matmul(w_, before_))));
    return {next, contribution};
}

}  // namespace forge::graph
