#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

// Tokens of several rows, whose recurrence says of each row what becomes of it: the same, mostly. Of
//
//   interleave(f(slice(x, 0)), f(slice(x, 1)))     is left     f(x)
//
// where f is elementwise work and sums over columns, with numbers and vectors that all rows share; what a token has
// once is repeated for its rows. Nothing is rewritten of which the parts are read otherwise too.

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// Whether two operations differ in their operands alone.
bool are_alike(const Op& a, const Op& b) {
    const ir::Attrs &x = a.attrs, &y = b.attrs;
    return a.code == b.code && a.type == b.type && a.args.size() == b.args.size() && x.value == y.value &&
           x.dtype == y.dtype && x.dim == y.dim && x.start == y.start && x.step == y.step && x.count == y.count &&
           x.length == y.length && x.name == y.name;
}

bool has_rows_of_tokens(const ir::Type& type) { return type.rank() > 0 && type.shape[0].symbol == ir::kChunkSymbol; }

/// The axis, counted from the first.
std::int64_t axis_of(const Op& op, std::int64_t rank) { return op.attrs.dim < 0 ? op.attrs.dim + rank : op.attrs.dim; }

class Joining {
    using Rows = std::vector<ValueId>;  ///< the first, second, … row of every token

  public:
    explicit Joining(const Function& fn) : fn_(fn), users_(ir::users_of(fn)), results_(ir::result_uses(fn)) {}

    Function run() {
        out_.name = fn_.name;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (op.code == Opcode::Interleave && axis_of(op, op.type.rank()) == 0 && is_joined(v)) {
                made_.clear();
                map_.push_back(whole(op.args));
                continue;
            }
            std::vector<ValueId> args;
            for (const ValueId a : op.args) args.push_back(map_[static_cast<std::size_t>(a)]);
            map_.push_back(ir::keep(out_, op, std::move(args)));
        }
        for (ir::Result r : fn_.results) {
            r.value = map_[static_cast<std::size_t>(r.value)];
            out_.results.push_back(std::move(r));
        }
        return dce(out_);
    }

  private:
    /// Whether what is interleaved is made alike, and read by nothing else.
    bool is_joined(ValueId v) {
        seen_.clear();
        inner_ = {v};
        if (!are_made_alike(fn_.op(v).args)) return false;
        return std::all_of(inner_.begin(), inner_.end(), [&](ValueId u) {
            const auto& users = users_[static_cast<std::size_t>(u)];
            return u == v || (results_[static_cast<std::size_t>(u)] == 0 &&
                              std::all_of(users.begin(), users.end(), [&](ValueId w) { return inner_.contains(w); }));
        });
    }

    /// What all are rows of, if they are taken from one value in turn.
    [[nodiscard]] std::optional<ValueId> source(const Rows& rows) const {
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Op& op = fn_.op(rows[i]);
            const bool turn = op.code == Opcode::Slice && op.attrs.length == 0 && axis_of(op, op.type.rank()) == 0 &&
                              op.attrs.step == static_cast<std::int64_t>(rows.size()) &&
                              op.attrs.start == static_cast<std::int64_t>(i) && op.args[0] == fn_.op(rows[0]).args[0];
            if (!turn) return std::nullopt;
        }
        return fn_.op(rows[0]).args[0];
    }

    static bool are_equal(const Rows& rows) {
        return std::all_of(rows.begin(), rows.end(), [&](ValueId v) { return v == rows[0]; });
    }

    /// Whether each row of the result is made of the same row of the operands.
    [[nodiscard]] bool is_by_rows(const Op& op) const {
        if (ir::is_elementwise(op.code)) return op.code != Opcode::Tril && op.code != Opcode::Triu;
        const bool reduces = op.code == Opcode::Sum || op.code == Opcode::Amax;
        if (!reduces && op.code != Opcode::Unsqueeze && op.code != Opcode::Part && op.code != Opcode::Concat)
            return false;
        const std::int64_t rank = op.code == Opcode::Unsqueeze ? op.type.rank() : fn_.op(op.args[0]).type.rank();
        return axis_of(op, rank) > 0;
    }

    bool are_made_alike(const Rows& rows) {
        if (!seen_.insert(rows).second || source(rows) || are_equal(rows)) return true;
        const Op& first = fn_.op(rows[0]);
        if (first.args.empty() || !has_rows_of_tokens(first.type) || !is_by_rows(first)) return false;
        for (const ValueId v : rows) {
            if (!are_alike(first, fn_.op(v))) return false;
            inner_.insert(v);
        }
        for (std::size_t i = 0; i < first.args.size(); ++i)
            if (!are_made_alike(operands(rows, i))) return false;
        return true;
    }

    [[nodiscard]] Rows operands(const Rows& rows, std::size_t i) const {
        Rows found;
        for (const ValueId v : rows) found.push_back(fn_.op(v).args[i]);
        return found;
    }

    /// The value of all rows.
    ValueId whole(const Rows& rows) {
        if (const auto it = made_.find(rows); it != made_.end()) return it->second;
        ValueId made = ir::kNoValue;
        const Op& first = fn_.op(rows[0]);
        if (const auto of = source(rows)) {
            made = map_[static_cast<std::size_t>(*of)];
        } else if (are_equal(rows)) {
            made = map_[static_cast<std::size_t>(rows[0])];
            if (has_rows_of_tokens(first.type)) made = repeated(made, first, rows.size());
        } else {
            std::vector<ValueId> args;
            for (std::size_t i = 0; i < first.args.size(); ++i) args.push_back(whole(operands(rows, i)));
            made = ir::emit(out_, first.code, std::move(args), first.attrs, first.where, first.name);
        }
        return made_[rows] = made;
    }

    ValueId repeated(ValueId of, const Op& like, std::size_t count) {
        ir::Attrs attrs;
        attrs.dim = 0, attrs.count = static_cast<std::int64_t>(count);
        return ir::emit(out_, Opcode::RepeatInterleave, {of}, attrs, like.where, "");
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    Function out_;
    std::vector<ValueId> map_;
    std::set<Rows> seen_;
    std::set<ValueId> inner_;  ///< what would be joined, and the value itself
    std::map<Rows, ValueId> made_;
};

}  // namespace

Function join_rows(const Function& fn) { return Joining(fn).run(); }

}  // namespace forge::graph
