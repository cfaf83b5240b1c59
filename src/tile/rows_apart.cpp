#include "tile/rows_apart.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/passes.h"
#include "ir/definition.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// Of the rows of tokens.
bool takes_every_other(const Op& op) {
    return op.code == Opcode::Slice && op.attrs.dim == 0 && op.attrs.step > 1 &&
           op.type.shape[0].symbol == ir::kChunkSymbol;
}

class Parting {
  public:
    explicit Parting(const Function& fn)
        : fn_(fn), users_(ir::users_of(fn)), results_(ir::result_uses(fn)), steps_(fn.ops.size()) {
        for (ValueId v = fn.size() - 1; v >= 0; --v) steps_[index(v)] = step_of(v);
    }

    Function run() {
        out_.name = fn_.name;
        for (ValueId v = 0; v < fn_.size(); ++v) {
            const Op& op = fn_.op(v);
            if (is_apart(v)) make_parts(v);
            else if (takes_every_other(op) && is_apart(op.args[0]))
                made_.push_back(part(op.args[0], op.attrs.start, op.attrs.step));
            else made_.push_back(copied(v));
        }
        for (const ir::Result& r : fn_.results) out_.results.push_back({r.name, r.role, made_[index(r.value)], r.at});
        return graph::dce(out_);
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    [[nodiscard]] bool is_apart(ValueId v) const { return steps_[index(v)] > 1; }

    /// How many parts a value's rows are read in, if it is only read so and can be made so; else 1.
    [[nodiscard]] std::int64_t step_of(ValueId v) const {
        const Op& op = fn_.op(v);
        if (results_[index(v)] > 0 || users_[index(v)].empty() || !is_by_rows(v)) return 1;
        const auto step = [&](ValueId u) {
            const Op& user = fn_.op(u);
            const bool every_other = takes_every_other(user) && user.attrs.length == 0 && user.attrs.start >= 0 &&
                                     op.type.shape[0].factor == user.attrs.step * user.type.shape[0].factor;
            return every_other ? user.attrs.step : is_along_rows(u, v) ? steps_[index(u)] : 1;
        };
        const std::int64_t first = step(users_[index(v)][0]);
        const auto is_alike = [&](ValueId u) { return step(u) == first; };
        return std::all_of(users_[index(v)].begin(), users_[index(v)].end(), is_alike) ? first : 1;
    }

    /// Whether every row of a value follows from the same rows of what it is made of.
    [[nodiscard]] bool is_by_rows(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.args.empty() || op.type.rank() == 0 || op.type.rank() > 2) return false;
        if (op.code == Opcode::Sum || op.code == Opcode::Amax) return op.attrs.dim == 1 && op.type.rank() == 1;
        if (op.code == Opcode::Unsqueeze) return op.attrs.dim == 1 && op.type.rank() == 2;
        return ir::is_elementwise(op.code) && op.code != Opcode::Tril && op.code != Opcode::Triu;
    }
    /// Whether an operand has the rows that a value has, rather than columns or the same number for all rows.
    [[nodiscard]] bool is_along_rows(ValueId v, ValueId a) const {
        const ir::Type &type = fn_.op(v).type, &from = fn_.op(a).type;
        if (type.rank() == 0 || from.rank() == 0 || from.shape[0] != type.shape[0]) return false;
        return from.rank() == type.rank() || !ir::is_elementwise(fn_.op(v).code);
    }

    void make_parts(ValueId v) {
        const std::int64_t step = steps_[index(v)];
        for (std::int64_t start = 0; start < step; ++start) {
            Op op = fn_.op(v);
            for (ValueId& a : op.args) a = is_along_rows(v, a) ? part(a, start, step) : made_[index(a)];
            op.type.shape[0].factor /= step;
            parts_[{v, start, step}] = out_.add(std::move(op));
        }
        made_.push_back(ir::kNoValue);
    }

    /// The rows from `start` on, one in so many.
    ValueId part(ValueId v, std::int64_t start, std::int64_t step) {
        const auto [at, fresh] = parts_.try_emplace({v, start, step}, ir::kNoValue);
        if (!fresh) return at->second;
        Op op{Opcode::Slice, fn_.op(v).type, {made_[index(v)]}, {}, {}, fn_.op(v).where, std::nullopt};
        op.attrs.dim = 0, op.attrs.start = start, op.attrs.step = step;
        op.type.shape[0].factor /= step;
        return at->second = out_.add(std::move(op));
    }
    ValueId copied(ValueId v) {
        Op op = fn_.op(v);
        for (ValueId& a : op.args) a = made_[index(a)];
        return out_.add(std::move(op));
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    std::vector<std::int64_t> steps_;
    Function out_;
    std::vector<ValueId> made_;  ///< of every value the one that stands for it; none of what is made in parts
    std::map<std::tuple<ValueId, std::int64_t, std::int64_t>, ValueId> parts_;  ///< by their first row and step
};

}  // namespace

bool has_rows_apart(const Function& kernel) {
    return std::any_of(kernel.ops.begin(), kernel.ops.end(), takes_every_other);
}

Function with_rows_apart(const Function& kernel) { return has_rows_apart(kernel) ? Parting(kernel).run() : kernel; }

}  // namespace forge::tile
