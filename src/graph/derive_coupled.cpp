#include "graph/derive_coupled.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "forge/error.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Opcode;
using ir::ValueId;
const Dim kChunkAxis(ir::kChunkSymbol);

[[noreturn]] void refuse_coupled(const std::string& state, const std::string& why, const Location& where) {
    throw CompileError(Diagnostic{fmt::format("derive: the state '{}' is derived together with others: {}", state, why),
                                  "matrices that decay by numbers, each added to those after it", "", where,
                                  "write the phases chunk, decay and merge by hand"});
}

}  // namespace

CoupledChunk::CoupledChunk(ChunkWriter& out, std::vector<Member> members, int key_axis)
    : out_(out), members_(std::move(members)), key_axis_(key_axis) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const ir::StateDecl& s = *members_[i].state;
        const StateForm& form = *members_[i].after;
        if (s.type.rank() != 2) refuse_coupled(s.name, "it is no matrix", s.where);
        for (const Decay& d : form.scale)
            if (d.axis != Decay::Axis::None) refuse_coupled(s.name, "it decays by rows or columns", form.where);
        for (const Coupling& c : form.couplings)
            if (index(c.state) >= i) refuse_coupled(s.name, "each is added to the other", form.where);
        const ValueId before = out_.param(s.name, ir::Role::State, s.type, s.where);
        before_.push_back(key_axis == 1 ? out_.transpose(before) : before);
        gates_.push_back(gate(form));
        collect(form);
    }
    for (std::size_t i = 0; i < members_.size(); ++i)
        for (const Outer& o : members_[i].after->outers) {
            Write w{i, o, kNone, kNone, -1};
            if (o.is_known()) w.value = out_.per_token(o.value->known);
            else
                w.unknown =
                    static_cast<int>(std::find(unknowns_.begin(), unknowns_.end(), o.value) - unknowns_.begin());
            const bool zero = out_.padding(o.key.v) == 0.0 || (w.unknown < 0 && out_.padding(o.value->known.v) == 0.0);
            w.key = out_.per_token(zero ? o.key : out_.masked(o.key, 0));
            writes_.push_back(std::move(w));
        }
    solve();
}

std::size_t CoupledChunk::index(const std::string& state) const {
    const auto it =
        std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.state->name == state; });
    if (it == members_.end()) throw InternalError("derive: a coupling with a state that is not derived together");
    return static_cast<std::size_t>(it - members_.begin());
}

ValueId CoupledChunk::gate(const StateForm& form) {
    if (form.state.empty())
        refuse_coupled(form.couplings.empty() ? "?" : form.couplings[0].state, "it is replaced", form.where);
    TokenRow sum;
    for (const Decay& d : form.scale) sum = plus(out_, sum, d.log);
    return sum.v == kNone ? kNone : out_.per_token(out_.masked(sum, 0));
}

void CoupledChunk::collect(const StateForm& form) {
    for (const Outer& o : form.outers) {
        if (o.is_known() || std::count(unknowns_.begin(), unknowns_.end(), o.value) > 0) continue;
        for (const Read& r : o.value->reads) collect(*r.of);
        unknowns_.push_back(o.value);
    }
}

/// exp(G_i - G_j) for j <= i; before the token's own decay for j < i.
ValueId CoupledChunk::decays(std::size_t member, bool after) {
    const ValueId g = gates_[member];
    if (g == kNone) return out_.tril(ones({kChunkAxis, kChunkAxis}), !after);
    const ValueId G = out_.cumsum(g), at = after ? G : out_.sub(G, g);
    return out_.tril(out_.exp(out_.sub(out_.unsqueeze(at, 1), out_.unsqueeze(G, 0))), !after);
}

ValueId CoupledChunk::one_later(ValueId rows) {
    const auto below = [&](std::int64_t diagonal) {
        Attrs attrs;
        attrs.diagonal = diagonal;
        return out_.emit(Opcode::Tril, {ones({kChunkAxis, kChunkAxis})}, attrs);
    };
    return out_.matmul(out_.sub(below(-1), below(-2)), rows);
}

ValueId CoupledChunk::rows_times(ValueId matrix, ValueId factor) {
    if (matrix == kNone || factor == kNone) return matrix;
    return out_.mul(matrix, out_.type(factor).rank() == 0 ? factor : out_.unsqueeze(factor, 1));
}

/// Of what token j wrote by `write`, so much is in the member after token i, or before it.
ValueId CoupledChunk::numbers(std::size_t member, std::size_t write, bool after) {
    const auto key = std::tuple(member, write, after);
    if (const auto known = numbers_.find(key); known != numbers_.end()) return known->second;
    ValueId made = kNone;
    if (writes_[write].member == member) {
        made = decays(member, after);
    } else if (!after) {
        made = numbers(member, write, true);
        if (made != kNone) made = one_later(made);
    } else {
        for (const Coupling& c : members_[member].after->couplings) {
            const ValueId taken = numbers(index(c.state), write, c.after);
            const ValueId factor = c.coefficient.v == kNone ? out_.mask() : out_.masked(c.coefficient, 0).v;
            if (taken != kNone) made = out_.add(made, rows_times(taken, factor));
        }
        if (made != kNone) made = out_.tril(out_.matmul(decays(member, true), made), false);
    }
    return numbers_[key] = made;
}

/// The same of the member `from` before the chunk.
ValueId CoupledChunk::starts(std::size_t member, std::size_t from, bool after) {
    const auto key = std::tuple(member, from, after);
    if (const auto known = starts_.find(key); known != starts_.end()) return known->second;
    ValueId made = kNone;
    if (member == from) {
        const ValueId g = gates_[member];
        made = g == kNone ? ones({kChunkAxis}) : out_.exp(after ? out_.cumsum(g) : out_.sub(out_.cumsum(g), g));
    } else if (!after) {
        made = starts(member, from, true);
        if (made != kNone) made = out_.at(Opcode::Squeeze, one_later(out_.unsqueeze(made, 1)), 1);
    } else {
        for (const Coupling& c : members_[member].after->couplings) {
            const ValueId taken = starts(index(c.state), from, c.after);
            if (taken == kNone) continue;
            const ValueId factor = c.coefficient.v == kNone ? out_.mask() : out_.masked(c.coefficient, 0).v;
            made = out_.add(made, out_.mul(taken, factor));
        }
        if (made != kNone)
            made = out_.at(Opcode::Squeeze, out_.matmul(decays(member, true), out_.unsqueeze(made, 1)), 1);
    }
    return starts_[key] = made;
}

std::vector<CoupledChunk::Part> CoupledChunk::parts(const StateForm& form) {
    for (std::size_t i = 0; i < members_.size(); ++i)
        if (members_[i].after.get() == &form) return {{i, true, kNone}};
    std::vector<Part> all;
    if (!form.state.empty()) {
        ValueId factor = kNone;
        for (const Decay& d : form.scale) {
            if (d.axis != Decay::Axis::None) refuse_coupled(form.state, "it decays by rows or columns", form.where);
            factor = out_.mul(factor, d.factor.v);
        }
        all.push_back({index(form.state), false, factor});
    }
    for (const Coupling& c : form.couplings) all.push_back({index(c.state), c.after, c.coefficient.v});
    return all;
}

ValueId CoupledChunk::scores(ValueId key, const Part& part, std::size_t write) {
    const ValueId weights = numbers(part.member, write, part.after);
    if (weights == kNone) return kNone;
    const ValueId products = out_.matmul(key, out_.transpose(writes_[write].key));
    return rows_times(out_.tril(out_.mul(products, weights), !part.after), part.factor);
}

ValueId CoupledChunk::dot(ValueId a, ValueId b) { return out_.unsqueeze(out_.sum(out_.mul(a, b), 1), 1); }

ValueId CoupledChunk::value_of(const Outer& outer) {
    if (outer.is_known()) return out_.per_token(outer.value->known);
    const auto r = static_cast<std::int64_t>(unknowns_.size());
    const auto it = std::find(unknowns_.begin(), unknowns_.end(), outer.value);
    if (it == unknowns_.end()) throw InternalError("derive: an update that was not solved for");
    return r == 1 ? updates_ : out_.at(Opcode::Slice, updates_, 0, it - unknowns_.begin(), r);
}

void CoupledChunk::solve() {
    const std::size_t r = unknowns_.size();
    if (r == 0) return;
    std::vector<std::vector<ValueId>> blocks(r, std::vector<ValueId>(r, kNone)),
        start(members_.size(), std::vector<ValueId>(r, kNone));
    std::vector<ValueId> right(r, kNone);
    for (std::size_t j = 0; j < r; ++j) {
        if (unknowns_[j]->known.v != kNone) right[j] = out_.per_token(unknowns_[j]->known);
        for (const Read& read : unknowns_[j]->reads) {
            const ValueId key = out_.per_token(read.key);
            const ValueId c = times(out_, read.coefficient, {out_.constant(-1), false}).v;
            const bool whole =
                std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.after == read.of; });
            for (const Part& part : parts(*read.of)) {
                for (std::size_t w = 0; w < writes_.size(); ++w) {
                    const ValueId s = scores(key, part, w);
                    if (s == kNone) continue;
                    if (writes_[w].unknown < 0) {
                        right[j] = out_.sub(right[j], rows_times(out_.matmul(s, writes_[w].value), c));
                    } else {
                        ValueId& block = blocks[j][static_cast<std::size_t>(writes_[w].unknown)];
                        block = out_.add(block, rows_times(s, c));
                    }
                }
                for (std::size_t l = 0; l < members_.size(); ++l)
                    if (const ValueId at = starts(part.member, l, part.after); at != kNone)
                        start[l][j] =
                            out_.add(start[l][j], rows_times(rows_times(rows_times(key, at), part.factor), c));
            }
            for (const Outer& o : read.of->outers) {
                if (whole) break;
                const ValueId own = dot(key, out_.per_token(o.key));
                if (o.is_known()) {
                    right[j] = out_.sub(right[j], rows_times(out_.mul(own, value_of(o)), c));
                    continue;
                }
                const auto i = static_cast<std::size_t>(std::find(unknowns_.begin(), unknowns_.end(), o.value) -
                                                        unknowns_.begin());
                blocks[j][i] = out_.add(blocks[j][i], rows_times(out_.mul(out_.identity(kChunkAxis), own), c));
            }
        }
    }
    std::vector<ValueId> rows;
    for (auto& row : blocks) {
        for (ValueId& b : row)
            if (b == kNone) b = out_.expand(out_.constant(0), {kChunkAxis, kChunkAxis});
        rows.push_back(out_.interleave(row, 1));
    }
    const ValueId A = out_.tril(out_.interleave(rows, 0), true);
    const ValueId inverse = out_.emit(Opcode::Inverse, {out_.add(out_.identity(out_.type(A).shape[0]), A)});
    const auto solved = [&](std::vector<ValueId>& parts) -> ValueId {
        const auto some = std::find_if(parts.begin(), parts.end(), [](ValueId v) { return v != kNone; });
        if (some == parts.end()) return kNone;
        const Shape shape = out_.type(*some).shape;
        for (ValueId& v : parts) v = v == kNone ? out_.expand(out_.constant(0), shape) : out_.expand(v, shape);
        return out_.matmul(inverse, out_.interleave(parts));
    };
    updates_ = solved(right);
    for (std::size_t l = 0; l < members_.size(); ++l)
        if (const ValueId w = solved(start[l]); w != kNone) updates_ = out_.sub(updates_, out_.matmul(w, before_[l]));
    out_.fn.op(updates_).name = "updates";
}

TokenRow CoupledChunk::read(TokenRow key_row, const StateForm& form) {
    const ValueId key = out_.per_token(key_row);
    ValueId sum = kNone;
    for (const Part& part : parts(form)) {
        for (std::size_t w = 0; w < writes_.size(); ++w)
            if (const ValueId s = scores(key, part, w); s != kNone)
                sum = out_.add(sum, out_.matmul(s, value_of(writes_[w].outer)));
        for (std::size_t l = 0; l < members_.size(); ++l)
            if (const ValueId at = starts(part.member, l, part.after); at != kNone)
                sum = out_.add(sum, rows_times(rows_times(out_.matmul(key, before_[l]), at), part.factor));
    }
    const bool whole =
        std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.after.get() == &form; });
    for (const Outer& o : form.outers)
        if (!whole) sum = out_.add(sum, out_.mul(dot(key, out_.per_token(o.key)), value_of(o)));
    return {sum, true};
}

ChunkResult CoupledChunk::result(const std::string& state) {
    const std::size_t i = index(state);
    ValueId next = kNone;
    const auto last = [&](ValueId rows) { return out_.at(Opcode::Select, rows, 0, -1); };
    for (std::size_t l = 0; l < members_.size(); ++l)
        if (const ValueId at = starts(i, l, true); at != kNone) next = out_.add(next, out_.mul(before_[l], last(at)));
    for (std::size_t w = 0; w < writes_.size(); ++w)
        if (const ValueId weights = numbers(i, w, true); weights != kNone) {
            const ValueId keys = out_.mul(writes_[w].key, out_.unsqueeze(last(weights), 1));
            next = out_.add(next, out_.matmul(out_.transpose(keys), value_of(writes_[w].outer)));
        }
    return {key_axis_ == 1 ? out_.transpose(next) : next, kNone};
}

}  // namespace forge::graph
