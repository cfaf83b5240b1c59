// scale x exp(cumsum(g)) as `decay_rows` where x and g belong to a decay product: the product has these decays in
// parts, and can write the rows by the way. A row decayed to the chunk's end is the product's second operand, one from
// its beginning a first operand.
#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

struct Rows {
    ValueId x = ir::kNoValue, gates = ir::kNoValue, scale = ir::kNoValue;  ///< no scale: 1
    ir::Attrs attrs;                                                       ///< of the sums
    [[nodiscard]] auto key() const { return std::tuple(x, gates, attrs.reverse, attrs.exclusive); }
};

class Finder {
  public:
    Finder(const Function& fn, bool multiplied)
        : fn_(fn), multiplied_(multiplied), users_(ir::users_of(fn)), results_(ir::result_uses(fn)) {}

    /// The rows that v is, if it is stored and nothing reads it, or multiplied and nothing else.
    [[nodiscard]] std::optional<Rows> rows(ValueId v) const {
        if (!is_stored(v) && !is_multiplied(v)) return std::nullopt;
        std::vector<ValueId> factors;
        collect(v, factors);
        Rows found;
        for (const ValueId f : factors)
            if (!place(f, found)) return std::nullopt;
        const bool whole = found.x != ir::kNoValue && found.gates != ir::kNoValue;
        if (!is_stored(v) && (!found.attrs.reverse || found.scale != ir::kNoValue)) return std::nullopt;
        return whole && of_a_product(found) ? std::optional(found) : std::nullopt;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    [[nodiscard]] bool is_stored(ValueId v) const {
        const bool spill = std::any_of(fn_.results.begin(), fn_.results.end(),
                                       [&](const ir::Result& r) { return r.value == v && r.role == Role::Spill; });
        return spill && results_[index(v)] == 1 && users_[index(v)].empty();
    }
    [[nodiscard]] bool is_multiplied(ValueId v) const {
        const auto& users = users_[index(v)];
        return multiplied_ && results_[index(v)] == 0 && !users.empty() &&
               std::all_of(users.begin(), users.end(), [&](ValueId u) {
                   const Op& op = fn_.op(u);
                   return ir::is_matmul(op.code) && (op.args.size() < 3 || op.args[2] != v);
               });
    }

    /// The factors of a product that nothing else reads parts of.
    void collect(ValueId v, std::vector<ValueId>& factors) const {
        const Op& op = fn_.op(v);
        for (const ValueId a : op.args) {
            const bool inner = fn_.op(a).code == Opcode::Mul && users_[index(a)].size() == 1 && results_[index(a)] == 0;
            if (op.code == Opcode::Mul && inner) collect(a, factors);
            else factors.push_back(a);
        }
        if (op.code != Opcode::Mul) factors = {v};
    }

    /// Classifies a factor; false if its kind is taken already.
    [[nodiscard]] bool place(ValueId f, Rows& rows) const {
        const Op& op = fn_.op(f);
        const auto take = [&](ValueId& where, ValueId v) { return where == ir::kNoValue && (where = v, true); };
        if (op.type.rank() == 0)
            return (op.code == Opcode::Param || op.code == Opcode::Constant) && take(rows.scale, f);
        if (op.code == Opcode::Exp && fn_.op(op.args[0]).code == Opcode::Cumsum && fn_.op(op.args[0]).attrs.dim == 0) {
            const Op& sums = fn_.op(op.args[0]);
            rows.attrs.reverse = sums.attrs.reverse, rows.attrs.exclusive = sums.attrs.exclusive;
            return take(rows.gates, sums.args[0]);
        }
        return op.type.rank() == 2 && take(rows.x, f);
    }

    [[nodiscard]] bool of_a_product(const Rows& rows) const {
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) {
            if (op.code != Opcode::DecayMatmul || op.args[2] != rows.gates) return false;
            return rows.attrs.reverse ? rows.attrs.exclusive && op.args[1] == rows.x
                                      : op.attrs.exclusive == rows.attrs.exclusive && op.args[0] == rows.x;
        });
    }

    const Function& fn_;
    bool multiplied_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
};

}  // namespace

Function decay_rows(const Function& fn, bool multiplied) {
    const Finder finder(fn, multiplied);
    std::set<decltype(Rows{}.key())> made;  // a product writes each of its operands once
    Function out;
    out.name = fn.name;
    std::vector<ValueId> map;
    const auto at = [&](ValueId v) { return map[static_cast<std::size_t>(v)]; };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        const auto rows = finder.rows(v);
        if (rows && made.insert(rows->key()).second) {
            ir::Attrs one;
            one.value = 1;
            const ValueId scale =
                rows->scale == ir::kNoValue
                    ? out.add({Opcode::Constant, {DType::F32, {}}, {}, one, "", op.where, std::nullopt})
                    : at(rows->scale);
            map.push_back(ir::emit(out, Opcode::DecayRows, {at(rows->x), at(rows->gates), scale}, rows->attrs, op.where,
                                   op.name));
        } else {
            std::vector<ValueId> args;
            for (const ValueId a : op.args) args.push_back(at(a));
            map.push_back(ir::keep(out, op, std::move(args)));
        }
    }
    for (const ir::Result& r : fn.results) {
        out.results.push_back(r);
        out.results.back().value = at(r.value);
    }
    return dce(cse(out));
}

}  // namespace forge::graph
