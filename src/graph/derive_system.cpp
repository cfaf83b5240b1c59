// MatrixChunk: the unit lower-triangular system of the vectors that read the state they are written to.
#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/derive_chunk.h"

namespace forge::graph {

using ir::Opcode;
using ir::ValueId;

/// Every unknown reads once, after all decays, what those before it wrote.
bool MatrixChunk::in_rows() const {
    const bool several = unknowns_.size() > 1;
    if (several && (g_key_ != kNone || g_value_ != kNone)) return false;
    std::vector<const ReadForm*> written;
    for (const Write& w : writes_) {
        if (w.unknown < 0 && !several) continue;
        if (w.unknown != static_cast<int>(written.size())) return false;
        written.push_back(w.outer.value.get());
    }
    if (written.size() != unknowns_.size()) return false;
    for (std::size_t j = 0; j < unknowns_.size(); ++j) {
        if (unknowns_[j]->reads.size() != 1) return false;
        const StateForm& of = *unknowns_[j]->reads[0].of;
        if (!several)
            return !of.state.empty() &&
                   std::all_of(of.outers.begin(), of.outers.end(), [](const Outer& o) { return o.is_known(); });
        if (of.state.empty() || of.scale != after_->scale || of.outers.size() != j) return false;
        for (std::size_t i = 0; i < j; ++i)
            if (of.outers[i].key.v != after_->outers[i].key.v || of.outers[i].value != after_->outers[i].value)
                return false;
    }
    return true;
}

/// Rows by turns: with its decay, the product of all keys of reads with all of writes, below the diagonal.
ValueId MatrixChunk::system_of_rows() {
    const auto r = static_cast<std::int64_t>(unknowns_.size());
    std::vector<ValueId> keys, write_keys, coefficients, known, starts;
    bool has_known = false;
    for (const auto& u : unknowns_) {
        const Read& read = u->reads[0];
        keys.push_back(out_.per_token(read.key));
        const ValueId c = negative(read.coefficient);
        coefficients.push_back(out_.type(c).rank() == 0 && r > 1 ? out_.per_token({c, false}) : c);
        has_known = has_known || u->known.v != kNone;
    }
    for (const Write& w : writes_)
        if (w.unknown >= 0) write_keys.push_back(w.key);
    for (const auto& u : unknowns_)
        if (has_known)
            known.push_back(known_rows(u->known.v == kNone
                                           ? TokenRow{out_.expand(out_.constant(0), {state_.type.shape.back()}), false}
                                           : u->known));
    const Exponents at = exponents(*unknowns_[0]->reads[0].of);
    const ValueId key = out_.interleave(keys), b = r == 1 ? coefficients[0] : out_.interleave(coefficients);
    ValueId A;
    if (r == 1) {
        A = out_.tril(scores(key, at, write_keys[0], 1), true);
    } else {
        A = out_.matmul(key, out_.transpose(out_.interleave(write_keys)));
        if (g_number_ != kNone) {
            const ValueId G = out_.cumsum(g_number_);
            const ValueId between = out_.tril(out_.exp(out_.sub(out_.unsqueeze(G, 1), out_.unsqueeze(G, 0))), false);
            A = out_.mul(A, out_.repeat(out_.repeat(between, r, 1), r, 0));
        }
        A = out_.tril(A, true);
    }
    A = times_rows(A, b);
    const ValueId inverse = out_.emit(Opcode::Inverse, {out_.add(out_.identity(out_.type(A).shape[0]), A)});
    ValueId w = times_rows(decayed_key(key, {kNone, at.key, kNone}, false), b);
    if (at.number != kNone) w = out_.mul(w, out_.unsqueeze(out_.repeat(out_.exp(at.number), r, 0), 1));
    w_ = out_.matmul(inverse, w);
    ValueId y = has_known ? out_.interleave(known) : kNone;
    if (r == 1) {
        // Known writes are part of the right side.
        if (const ValueId more = sum_of_reads(*unknowns_[0]->reads[0].of, key, true, true); more != kNone)
            y = out_.sub(y, times_rows(more, b));
    }
    return y == kNone ? kNone : out_.matmul(inverse, y);
}

/// Any number of reads each: the system in blocks of tokens, one for each pair of unknowns.
ValueId MatrixChunk::system() {
    const auto r = unknowns_.size();
    std::vector<std::vector<ValueId>> blocks(r, std::vector<ValueId>(r, kNone));
    std::vector<ValueId> right(r, kNone), start(r, kNone);
    const Dim chunk(ir::kChunkSymbol);
    for (std::size_t j = 0; j < r; ++j) {
        if (unknowns_[j]->known.v != kNone) right[j] = known_rows(unknowns_[j]->known);
        for (const Read& read : unknowns_[j]->reads) {
            const ValueId key = out_.per_token(read.key), c = negative(read.coefficient);
            const auto index = [&](const Outer& o) {
                return static_cast<std::size_t>(std::find(unknowns_.begin(), unknowns_.end(), o.value) -
                                                unknowns_.begin());
            };
            if (!read.of->state.empty()) {
                const Exponents at = exponents(*read.of);
                for (const Write& w : writes_)
                    if (w.unknown >= 0) {
                        ValueId& block = blocks[j][static_cast<std::size_t>(w.unknown)];
                        block = out_.add(block, times_rows(out_.tril(scores(key, at, w.key, 1), true), c));
                    }
                start[j] = out_.add(start[j], times_rows(decayed_key(key, at, true), c));
            }
            for (const Outer& o : read.of->outers)
                if (!o.is_known()) {
                    ValueId& block = blocks[j][index(o)];
                    const ValueId diagonal = out_.mul(out_.identity(chunk), dot(key, out_.per_token(o.key)));
                    block = out_.add(block, times_rows(diagonal, c));
                }
            if (const ValueId more = sum_of_reads(*read.of, key, true, true); more != kNone)
                right[j] = out_.sub(right[j], times_rows(more, c));
        }
    }
    const ValueId zeros = out_.expand(out_.constant(0), {chunk, chunk});
    std::vector<ValueId> rows;
    for (auto& row : blocks) {
        for (ValueId& b : row) b = b == kNone ? zeros : b;
        rows.push_back(out_.interleave(row, 1));
    }
    const ValueId A = out_.tril(out_.interleave(rows, 0), true);
    const ValueId inverse = out_.emit(Opcode::Inverse, {out_.add(out_.identity(out_.type(A).shape[0]), A)});
    const auto stacked = [&](std::vector<ValueId>& parts) -> ValueId {
        const auto some = std::find_if(parts.begin(), parts.end(), [](ValueId v) { return v != kNone; });
        if (some == parts.end()) return kNone;
        const Shape shape = out_.type(*some).shape;
        for (ValueId& v : parts) v = v == kNone ? out_.expand(out_.constant(0), shape) : out_.expand(v, shape);
        return out_.matmul(inverse, out_.interleave(parts));
    };
    w_ = stacked(start);
    return stacked(right);
}

void MatrixChunk::solve() {
    if (unknowns_.empty()) return;
    for (const auto& u : unknowns_)
        for (const Read& r : u->reads)
            if (g_value_ != kNone)
                throw CompileError(Diagnostic{
                    fmt::format("derive: the state '{}' decays by columns, and what is written to it reads it",
                                state_.name),
                    "decays by numbers or by rows, so that all columns have one triangular system", "", r.of->where,
                    "write the phases by hand"});
    u_ = in_rows() ? system_of_rows() : system();
    updates_ = out_.sub(u_, w_ == kNone ? kNone : out_.matmul(w_, before_));
    const auto named = [&](ValueId v, const char* name) {
        if (v != kNone) out_.fn.op(v).name = name;
    };
    named(u_, "u"), named(w_, "w"), named(updates_, "updates");
}

}  // namespace forge::graph
