// Elementwise products that have factors in common begin with these, where one of them is a decay mask: such a mask is
// worked out wherever it is read. A factor of a sum goes to its terms, if each shares it with a product made anyway.
//
//     a = m * x                       a = m * x
//     b = (tril(x * y) + z * w) * m   b = tril(a) * y + c * w
//     c = z * m                       c = z * m
//
// Scales of rows and columns and signs come last.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "graph/passes.h"
#include "graph/sums.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// What is left of a product that is zero above a diagonal; from kWhole on all of it.
constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

/// A product of matrices, scales and a sign, of which the part on and below a diagonal is left. Matrices from the
/// function's size on are what products share.
struct Product {
    std::vector<ValueId> matrices, scales;
    bool negative = false;
    std::int64_t diagonal = kWhole;
};

class Factors {
  public:
    explicit Factors(const Function& fn) : fn_(fn), users_(ir::users_of(fn)), results_(ir::result_uses(fn)) {
        for (const Op& op : fn.ops)
            if (op.code == Opcode::DecayMask) type_ = op.type;
    }

    Function run() {
        if (!type_) return fn_;
        for (ValueId v = 0; v < fn_.size(); ++v)
            if (is_last(v)) sums_[v] = {flattened(v)};
        std::erase_if(sums_, [&](const auto& s) { return !has_mask(s.second[0]); });
        for (auto& [v, terms] : sums_) distribute(v, terms);
        while (share_a_pair()) {}
        return shared_.empty() ? fn_ : rewritten();
    }

  private:
    /// The product of two matrices, or of one and a scale, that several products begin with.
    struct Shared {
        ValueId a, b;
        std::int64_t diagonal;
    };
    using Pair = std::pair<ValueId, ValueId>;  ///< a matrix made late, then what it is multiplied by

    [[nodiscard]] bool is_mask(ValueId v) const { return v < fn_.size() && fn_.op(v).code == Opcode::DecayMask; }
    [[nodiscard]] bool has_mask(const Product& p) const {
        return std::any_of(p.matrices.begin(), p.matrices.end(), [&](ValueId m) { return is_mask(m); });
    }
    [[nodiscard]] bool is_product(ValueId v) const {
        const Op& op = fn_.op(v);
        return (op.code == Opcode::Mul || op.code == Opcode::Neg || op.code == Opcode::Tril) && op.type == *type_;
    }
    /// Whether something reads a product that is not part of it.
    [[nodiscard]] bool is_last(ValueId v) const {
        const auto& users = users_[static_cast<std::size_t>(v)];
        return is_product(v) && (results_[static_cast<std::size_t>(v)] > 0 ||
                                 std::any_of(users.begin(), users.end(), [&](ValueId u) { return !is_product(u); }));
    }

    [[nodiscard]] Product flattened(ValueId v) const {
        Product p;
        flatten(v, p);
        return p;
    }
    void flatten(ValueId v, Product& p) const {
        constexpr std::size_t kMostMatrices = 64;  // a product of more is a factor itself
        const Op& op = fn_.op(v);
        if (op.type != *type_) return p.scales.push_back(v);
        if (!is_product(v) || p.matrices.size() >= kMostMatrices) return p.matrices.push_back(v);
        if (op.code == Opcode::Neg) p.negative = !p.negative;
        if (op.code == Opcode::Tril) p.diagonal = std::min(p.diagonal, static_cast<std::int64_t>(op.attrs.diagonal));
        for (const ValueId a : op.args) flatten(a, p);
    }

    /// (x + y) m becomes x m + y m, if x and y are products of something that is multiplied by m elsewhere.
    void distribute(ValueId v, std::vector<Product>& terms) const {
        Product rest = terms[0];
        const auto sum = std::find_if(rest.matrices.begin(), rest.matrices.end(), [&](ValueId m) {
            const Op& op = fn_.op(m);
            return (op.code == Opcode::Add || op.code == Opcode::Sub) &&
                   users_[static_cast<std::size_t>(m)].size() == 1;
        });
        if (sum == rest.matrices.end()) return;
        const std::vector<Addend> addends = graph::addends(fn_, *sum);
        rest.matrices.erase(sum);
        std::vector<Product> found;
        for (const Addend& addend : addends) {
            Product term = flattened(addend.v);
            if (!is_masked_elsewhere(term, rest, v)) return;
            term.negative = (term.negative != addend.negative) != rest.negative;
            term.diagonal = std::min(term.diagonal, rest.diagonal);
            term.matrices.insert(term.matrices.end(), rest.matrices.begin(), rest.matrices.end());
            term.scales.insert(term.scales.end(), rest.scales.begin(), rest.scales.end());
            found.push_back(std::move(term));
        }
        terms = std::move(found);
    }
    [[nodiscard]] bool is_masked_elsewhere(const Product& term, const Product& rest, ValueId here) const {
        const auto has = [](const Product& p, ValueId m) {
            return std::find(p.matrices.begin(), p.matrices.end(), m) != p.matrices.end();
        };
        return std::any_of(sums_.begin(), sums_.end(), [&](const auto& s) {
            const Product& p = s.second[0];
            const auto both = [&](const Product& one, bool masks) {
                return std::any_of(one.matrices.begin(), one.matrices.end(),
                                   [&](ValueId m) { return is_mask(m) == masks && has(p, m); });
            };
            return s.first != here && both(rest, true) && both(term, false);
        });
    }

    /// Of all pairs of factors the one that most products have, and of those what is made last: that of an earlier
    /// kernel would be made once more.
    bool share_a_pair() {
        std::map<Pair, std::vector<Product*>> products;
        for (auto& [v, terms] : sums_)
            for (Product& p : terms) {
                std::vector<Pair> pairs = pairs_of(p);
                std::sort(pairs.begin(), pairs.end());
                pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
                for (const Pair& pair : pairs) products[pair].push_back(&p);
            }
        std::vector<Product*>* best = nullptr;
        Pair pair;
        for (auto& [candidate, of] : products)
            if (of.size() > 1 && (!best || of.size() >= best->size())) pair = candidate, best = &of;
        if (!best) return false;
        const std::int64_t diagonal = (*best)[0]->diagonal;
        const bool alike =
            std::all_of(best->begin(), best->end(), [&](const Product* p) { return p->diagonal == diagonal; });
        const auto made = static_cast<ValueId>(fn_.size() + static_cast<int>(shared_.size()));
        shared_.push_back({pair.first, pair.second, alike ? diagonal : kWhole});
        for (Product* p : *best) {
            take(p->matrices, pair.first);
            if (!take(p->matrices, pair.second)) take(p->scales, pair.second);
            p->matrices.push_back(made);
            if (alike) p->diagonal = kWhole;
        }
        return true;
    }
    static bool take(std::vector<ValueId>& from, ValueId v) {
        const auto at = std::find(from.begin(), from.end(), v);
        if (at == from.end()) return false;
        from.erase(at);
        return true;
    }
    /// Those of a mask and a matrix, and of what is shared and anything else.
    [[nodiscard]] std::vector<Pair> pairs_of(const Product& p) const {
        std::vector<Pair> pairs;
        for (const ValueId a : p.matrices)
            for (const ValueId b : p.matrices) {
                const bool masked = is_mask(a) || is_mask(b) || a >= fn_.size();
                if (b < a && masked) pairs.emplace_back(a, b);
            }
        for (const ValueId a : p.matrices)
            for (const ValueId s : p.scales)
                if (a >= fn_.size()) pairs.emplace_back(a, s);
        return pairs;
    }

    [[nodiscard]] Function rewritten() {
        return ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const auto sum = sums_.find(static_cast<ValueId>(map_.size()));
            const bool changed =
                sum != sums_.end() && std::all_of(sum->second.begin(), sum->second.end(), [&](auto& p) {
                    return std::any_of(p.matrices.begin(), p.matrices.end(),
                                       [&](ValueId m) { return m >= fn_.size(); });
                });
            map_.push_back(changed ? made(out, sum->second, op) : ir::keep(out, op, std::move(args)));
            return map_.back();
        });
    }
    ValueId made(Function& out, const std::vector<Product>& terms, const Op& op) {
        std::vector<Addend> sum;
        for (const Product& p : terms) sum.push_back({made(out, p, op), false});
        return emit_sum(out, sum, op.where);
    }
    ValueId made(Function& out, Product p, const Op& op) {
        std::sort(p.matrices.rbegin(), p.matrices.rend());
        ValueId v = lower(out, made(out, p.matrices[0], op), p.diagonal, op);
        for (std::size_t i = 1; i < p.matrices.size(); ++i) v = times(out, v, made(out, p.matrices[i], op), op);
        if (p.negative) v = ir::emit(out, Opcode::Neg, {v}, {}, op.where);
        for (const ValueId s : p.scales) v = times(out, v, made(out, s, op), op);
        return v;
    }
    ValueId made(Function& out, ValueId v, const Op& op) {
        if (v < fn_.size()) return map_[static_cast<std::size_t>(v)];
        const auto [it, first] = made_.try_emplace(v, ir::kNoValue);
        if (first) {
            Shared shared = shared_[static_cast<std::size_t>(v - fn_.size())];
            if (is_mask(shared.a)) std::swap(shared.a, shared.b);  // products need not make what is not left
            const ValueId a = lower(out, made(out, shared.a, op), shared.diagonal, op);
            made_[v] = times(out, a, made(out, shared.b, op), op);
        }
        return made_[v];
    }
    static ValueId times(Function& out, ValueId a, ValueId b, const Op& op) {
        return ir::emit(out, Opcode::Mul, {a, b}, {}, op.where, op.name);
    }
    static ValueId lower(Function& out, ValueId v, std::int64_t diagonal, const Op& op) {
        if (diagonal == kWhole) return v;
        Attrs attrs;
        attrs.diagonal = diagonal;
        return ir::emit(out, Opcode::Tril, {v}, attrs, op.where);
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    std::optional<ir::Type> type_;                  ///< of decay masks, and of all that counts as a matrix
    std::map<ValueId, std::vector<Product>> sums_;  ///< what products and sums of them become
    std::vector<Shared> shared_;
    std::vector<ValueId> map_;
    std::map<ValueId, ValueId> made_;
};

}  // namespace

Function share_factors(const Function& fn) { return Factors(fn).run(); }

}  // namespace forge::graph
