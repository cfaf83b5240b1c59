// Products of scores with the first, the second, … row of tokens that have several are one product with all rows, and
// so are sums of scores over tokens:
//
//     f(q k₀ᵀ) v₀ + f(q k₁ᵀ) v₁  ->  f(q kᵀ) v        kᵣ and vᵣ: of each token's rows the r-th
//     Σⱼ f(q k₀ᵀ) + Σⱼ f(q k₁ᵀ)  ->  Σⱼ f(q kᵀ)
//
// where f is elementwise work that they have alike. What scores have once per token is repeated for its rows; a
// triangle is one of the tokens that columns belong to. For back ends whose products take inputs where they lie, which
// have a token's rows one after the other.
#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes.h"
#include "graph/token_mask.h"
#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// Every `step`-th row of a value, from the row on: one of each token.
struct Turn {
    ValueId of = ir::kNoValue;
    std::int64_t row = 0, step = 1;
};

std::optional<Turn> turn_of(const Function& fn, ValueId v) {
    const Op& op = fn.op(v);
    if (op.code != Opcode::Slice || op.attrs.dim != 0 || op.attrs.length != 0 || op.attrs.step < 2) return std::nullopt;
    const Dim &taken = op.type.shape[0], &all = fn.op(op.args[0]).type.shape[0];
    const bool one_of_each = taken.symbol == ir::kChunkSymbol && taken.factor == 1 && all.symbol == taken.symbol &&
                             all.factor == op.attrs.step && op.attrs.start >= 0 && op.attrs.start < op.attrs.step;
    return one_of_each ? std::optional(Turn{op.args[0], op.attrs.start, op.attrs.step}) : std::nullopt;
}

bool is_plain_product(const Op& op) {
    return (op.code == Opcode::Matmul || op.code == Opcode::MatmulAdd) && !op.attrs.trans_a && !op.attrs.trans_b;
}
bool are_scores(const Op& op) { return op.code == Opcode::Matmul && !op.attrs.trans_a && op.attrs.trans_b; }
bool is_sum_of_scores(const Op& op) { return op.code == Opcode::Sum && op.attrs.dim == 1 && op.type.rank() == 1; }

/// Whether each number of a value belongs to one token by the last axis.
bool has_columns(const ir::Type& type) {
    return type.rank() > 0 && type.shape.back().symbol == ir::kChunkSymbol && type.shape.back().factor == 1;
}

class JoiningProducts {
    using Parts = std::vector<ValueId>;  ///< of the first, second, … rows

  public:
    explicit JoiningProducts(const Function& fn)
        : fn_(fn), uses_(ir::result_uses(fn)), inner_(fn.ops.size()), turns_(fn.ops.size()) {
        const auto users = ir::users_of(fn);
        for (std::size_t i = 0; i < uses_.size(); ++i) uses_[i] += static_cast<int>(users[i].size());
        for (ValueId v = 0; v < fn.size(); ++v) {
            turns_[index(v)] = turn_of_scores(v);
            if (fn.op(v).code != Opcode::Add && fn.op(v).code != Opcode::MatmulAdd) continue;
            for (const ValueId a : addends_of(v)) inner_[index(a)] = goes_on(v, a);
        }
    }

    Function run() {
        return ir::rebuild(fn_, [&, v = ValueId{0}](Function& out, const Op& op, std::vector<ValueId> args) mutable {
            out_ = &out;
            const std::optional<ValueId> made = inner_[index(v)]               ? std::nullopt
                                                : op.code == Opcode::MatmulAdd ? joined_products(v)
                                                : op.code == Opcode::Add       ? joined_sums(v)
                                                                               : std::nullopt;
            map_.push_back(made ? *made : ir::keep(out, op, std::move(args)));
            return map_[index(v++)];
        });
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    [[nodiscard]] ValueId mapped(ValueId v) const { return map_[index(v)]; }

    /// What a sum adds to its products, or adds up.
    [[nodiscard]] std::vector<ValueId> addends_of(ValueId v) const {
        const Op& op = fn_.op(v);
        return op.code == Opcode::Add ? op.args : std::vector<ValueId>{op.args[2]};
    }
    /// Whether a sum's addend is a sum of the same kind that nothing else reads.
    [[nodiscard]] bool goes_on(ValueId v, ValueId addend) const {
        const Op &op = fn_.op(v), &inner = fn_.op(addend);
        return inner.code == op.code && inner.type == op.type && uses_[index(addend)] == 1;
    }

    /// The products that are added up in `v`, the last one first, and what else is, if it is no product.
    struct Sum {
        std::vector<ValueId> terms;
        ValueId rest = ir::kNoValue;
    };
    [[nodiscard]] Sum products_of(ValueId v) const {
        Sum sum{{}, v};
        while (sum.rest != ir::kNoValue && is_plain_product(fn_.op(sum.rest)) &&
               (sum.terms.empty() || uses_[index(sum.rest)] == 1)) {
            const Op& op = fn_.op(sum.rest);
            sum.terms.push_back(sum.rest);
            sum.rest = op.code == Opcode::MatmulAdd ? op.args[2] : ir::kNoValue;
        }
        return sum;
    }
    [[nodiscard]] std::vector<ValueId> all_addends(ValueId v) const {
        std::vector<ValueId> found, left = {v};
        while (!left.empty()) {
            const ValueId sum = left.back();
            left.pop_back();
            for (const ValueId a : addends_of(sum)) (goes_on(sum, a) ? left : found).push_back(a);
        }
        return found;
    }

    /// Of terms that are of one row each, by `turn`, those of all rows of the same value, in the rows' order.
    template <class TurnOf>
    static Parts all_rows(const std::vector<ValueId>& terms, TurnOf turn) {
        std::map<ValueId, std::map<std::int64_t, ValueId>> rows;
        for (const ValueId t : terms)
            if (const std::optional<Turn> of = turn(t)) {
                auto& found = rows[of->of];
                found.emplace(of->row, t);
                if (static_cast<std::int64_t>(found.size()) < of->step) continue;
                Parts parts;
                for (const auto& [row, term] : found) parts.push_back(term);
                return parts;
            }
        return {};
    }
    static bool is_one_of(const Parts& parts, ValueId v) {
        return std::find(parts.begin(), parts.end(), v) != parts.end();
    }
    [[nodiscard]] Parts operands(const Parts& parts, std::size_t i) const {
        Parts found;
        for (const ValueId v : parts) found.push_back(fn_.op(v).args[i]);
        return found;
    }

    std::optional<ValueId> joined_products(ValueId v) {
        const Sum sum = products_of(v);
        const Parts products = all_rows(sum.terms, [&](ValueId t) { return turn_of(fn_, fn_.op(t).args[1]); });
        if (products.empty() || !are_alike(operands(products, 0))) return std::nullopt;
        const ValueId scores = whole(operands(products, 0)),
                      values = mapped(fn_.op(fn_.op(products[0]).args[1]).args[0]);
        ValueId made = sum.rest == ir::kNoValue ? ir::kNoValue : mapped(sum.rest);
        const auto add = [&](ValueId a, ValueId b, const Op& like, Attrs attrs) {
            made = made == ir::kNoValue
                       ? ir::emit(*out_, Opcode::Matmul, {a, b}, std::move(attrs), like.where, like.name)
                       : ir::emit(*out_, Opcode::MatmulAdd, {a, b, made}, std::move(attrs), like.where, like.name);
        };
        for (std::size_t i = sum.terms.size(); i-- > 0;) {
            const Op& op = fn_.op(sum.terms[i]);
            if (!is_one_of(products, sum.terms[i])) add(mapped(op.args[0]), mapped(op.args[1]), op, op.attrs);
        }
        add(scores, values, fn_.op(v), {});
        return made;
    }

    std::optional<ValueId> joined_sums(ValueId v) {
        const std::vector<ValueId> addends = all_addends(v);
        const Parts sums = all_rows(addends, [&](ValueId t) {
            return is_sum_of_scores(fn_.op(t)) ? turns_[index(fn_.op(t).args[0])] : std::nullopt;
        });
        if (sums.empty() || !are_alike(operands(sums, 0))) return std::nullopt;
        const Op& op = fn_.op(v);
        ValueId made = ir::emit(*out_, Opcode::Sum, {whole(operands(sums, 0))}, fn_.op(sums[0]).attrs, op.where);
        for (const ValueId a : addends)
            if (!is_one_of(sums, a)) made = ir::emit(*out_, Opcode::Add, {mapped(a), made}, {}, op.where);
        return made;
    }

    /// Of which rows the keys of scores are; those of operands are known.
    [[nodiscard]] std::optional<Turn> turn_of_scores(ValueId v) const {
        const Op& op = fn_.op(v);
        if (are_scores(op)) return turn_of(fn_, op.args[1]);
        if (!ir::is_elementwise(op.code)) return std::nullopt;
        for (const ValueId a : op.args)
            if (turns_[index(a)]) return turns_[index(a)];
        return std::nullopt;
    }

    /// Whether parts are the rows of one value in turn.
    [[nodiscard]] bool are_rows(const Parts& parts) const {
        const auto first = turn_of(fn_, parts[0]);
        if (!first || first->step != static_cast<std::int64_t>(parts.size())) return false;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const auto turn = turn_of(fn_, parts[i]);
            if (!turn || turn->of != first->of || turn->row != static_cast<std::int64_t>(i)) return false;
        }
        return true;
    }
    static bool are_equal(const Parts& parts) {
        return std::all_of(parts.begin(), parts.end(), [&](ValueId v) { return v == parts[0]; });
    }

    /// Whether scores, or vectors of their columns, are made alike for all rows, by not too many operations.
    [[nodiscard]] bool are_alike(const Parts& parts, int depth = 0) {
        constexpr int kDeepest = 32;
        if (are_equal(parts)) return true;
        if (depth == kDeepest) return false;
        const auto [known, fresh] = alike_.try_emplace(parts, false);
        if (!fresh) return known->second;
        const bool alike = are_made_alike(parts, depth);
        return alike_[parts] = alike;
    }
    [[nodiscard]] bool are_made_alike(const Parts& parts, int depth) {
        const Op& first = fn_.op(parts[0]);
        if (first.type.rank() == 1 && are_rows(parts)) return true;
        for (const ValueId v : parts) {
            Attrs attrs = fn_.op(v).attrs;
            attrs.tri = first.attrs.tri;  // it says what need not be made
            if (fn_.op(v).code != first.code || !(attrs == first.attrs) || fn_.op(v).type != first.type) return false;
        }
        if (!has_columns(first.type)) return false;
        if (are_scores(first)) return are_equal(operands(parts, 0)) && are_rows(operands(parts, 1));
        const bool row = first.code == Opcode::Unsqueeze && first.attrs.dim == 0;
        if (!row && (!ir::is_elementwise(first.code) || first.code == Opcode::Triu)) return false;
        for (std::size_t i = 0; i < first.args.size(); ++i)
            if (!are_alike(operands(parts, i), depth + 1)) return false;
        return true;
    }

    ValueId whole(const Parts& parts) {
        if (const auto it = made_.find(parts); it != made_.end()) return it->second;
        return made_[parts] = made_whole(parts);
    }
    ValueId made_whole(const Parts& parts) {
        const Op& first = fn_.op(parts[0]);
        if (are_equal(parts)) return has_columns(first.type) ? repeated(parts) : mapped(parts[0]);
        if (first.type.rank() == 1 && are_rows(parts)) return mapped(first.args[0]);
        Attrs attrs = first.attrs;
        attrs.tri = ir::Tri::None;
        if (are_scores(first))
            return ir::emit(*out_, first.code, {mapped(first.args[0]), mapped(fn_.op(first.args[1]).args[0])}, attrs,
                            first.where, first.name);
        std::vector<ValueId> args;
        for (std::size_t i = 0; i < first.args.size(); ++i) args.push_back(whole(operands(parts, i)));
        if (first.code == Opcode::Tril) return triangle(args[0], first, static_cast<std::int64_t>(parts.size()));
        return ir::emit(*out_, first.code, std::move(args), attrs, first.where, first.name);
    }

    ValueId repeated(const Parts& parts) {
        const Op& op = fn_.op(parts[0]);
        Attrs attrs;
        attrs.dim = op.type.rank() - 1, attrs.count = static_cast<std::int64_t>(parts.size());
        return ir::emit(*out_, Opcode::RepeatInterleave, {mapped(parts[0])}, attrs, op.where);
    }

    /// Zero where a column's token is more than the diagonal behind the row's. A token's place is the number of those
    /// before it.
    ValueId triangle(ValueId scores, const Op& tril, std::int64_t rows) {
        const auto emit = [&](Opcode code, std::vector<ValueId> args, Attrs attrs = {}) {
            return ir::emit(*out_, code, std::move(args), std::move(attrs), tril.where);
        };
        Attrs before, repeated, down, across;
        before.exclusive = true, repeated.count = rows, down.dim = 1;
        const ValueId place = emit(Opcode::Cumsum, {token_mask_of(*out_)}, before),
                      token = emit(Opcode::RepeatInterleave, {place}, repeated);
        ValueId last = place;
        if (tril.attrs.diagonal != 0)
            last = emit(Opcode::Add,
                        {place, ir::emit_constant(*out_, static_cast<double>(tril.attrs.diagonal), tril.where)});
        const ValueId kept =
            emit(Opcode::Ge, {emit(Opcode::Unsqueeze, {last}, down), emit(Opcode::Unsqueeze, {token}, across)});
        return ir::emit(*out_, Opcode::Where, {kept, scores, ir::emit_constant(*out_, 0, tril.where)}, {}, tril.where,
                        tril.name);
    }

    const Function& fn_;
    std::vector<int> uses_;
    std::vector<bool> inner_;                 ///< sums that are added to others of their kind, and to nothing else
    std::vector<std::optional<Turn>> turns_;  ///< of scores, by their keys
    Function* out_ = nullptr;
    std::vector<ValueId> map_;
    std::map<Parts, bool> alike_;
    std::map<Parts, ValueId> made_;
};

std::ptrdiff_t products_in(const Function& fn) {
    return std::count_if(fn.ops.begin(), fn.ops.end(), [](const Op& op) { return ir::is_matmul(op.code); });
}

}  // namespace

Function join_products(const Function& fn) {
    const Function joined = dce(cse(JoiningProducts(fn).run()));
    return products_in(joined) < products_in(fn) ? joined : fn;  // else scores of single rows are read otherwise, too
}

}  // namespace forge::graph
