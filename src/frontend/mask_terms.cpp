#include "frontend/mask_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "frontend/mask_values.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr std::size_t kMostTerms = 8;
constexpr std::size_t kMostFactors = 64;  ///< of a term

constexpr const char* kSayWhereItEnds =
    "say where it ends: where(i - j < 64, …, 0) may be any function of the last 64 tokens";

/// A mask's function as a sum of terms.
class Terms {
  public:
    Terms(const Function& fn, const std::vector<ir::InputDecl>& inputs) : fn_(fn), values_(fn, inputs) {}

    MaskTerms run() {
        const ValueId v = fn_.results[0].value;
        Sum terms = fn_.op(v).type.dtype == DType::Bool ? condition(v) : of(v);
        return {std::move(terms), places_};
    }

  private:
    using Sum = std::vector<MaskTerm>;

    Sum of(ValueId v) {
        return sums_.at(v, [&] { return worked_out(v); });
    }

    Sum worked_out(ValueId v) {
        const Op& op = fn_.op(v);
        if (const auto n = values_.number(v)) return *n == 0 ? Sum{} : Sum{{*n, {}, {}, {}}};
        if (values_.sides(v) != kOfBoth) return {single(v, false)};
        switch (op.code) {
            case Opcode::Add:
            case Opcode::Sub:
                return plus(of(op.args[0]), of(op.args[1]), op.code == Opcode::Sub ? -1 : 1, op);
            case Opcode::Neg:
                return plus({}, of(op.args[0]), -1, op);
            case Opcode::Mul:
                return product(of(op.args[0]), of(op.args[1]), op);
            case Opcode::Div:
                if (const auto n = values_.number(op.args[1])) return plus({}, of(op.args[0]), 1 / *n, op);
                if (values_.sides(op.args[1]) == kOfBoth) break;
                return product(of(op.args[0]), {single(op.args[1], true)}, op);
            case Opcode::Exp:
            case Opcode::Exp2:
                return {exponential(op)};
            case Opcode::Cos:
            case Opcode::Sin:
                return wave(op);
            case Opcode::Where: {
                const Sum chosen = condition(op.args[0]);
                return plus(product(chosen, of(op.args[1]), op),
                            product(plus({{1, {}, {}, {}}}, chosen, -1, op), of(op.args[2]), op), 1, op);
            }
            case Opcode::To:
                return fn_.op(op.args[0]).type.dtype == DType::Bool ? condition(op.args[0]) : of(op.args[0]);
            default:
                break;
        }
        refuse_mask(
            op, fmt::format("{} of both places is no sum of products of one of i and one of j", ir::info(op.code).name),
            kSayWhereItEnds);
    }

    /// 1 where it is true, else 0.
    Sum condition(ValueId v) {
        return conditions_.at(v, [&] { return worked_out_condition(v); });
    }

    Sum worked_out_condition(ValueId v) {
        const Op& op = fn_.op(v);
        if (values_.sides(v) != kOfBoth) return {single(v, false)};
        if (op.code == Opcode::Where) {
            const Sum chosen = condition(op.args[0]);
            return plus(product(chosen, condition(op.args[1]), op),
                        product(plus({{1, {}, {}, {}}}, chosen, -1, op), condition(op.args[2]), op), 1, op);
        }
        if (!is_comparison(op.code)) refuse_mask(op, "a condition that is no comparison", kSayWhereItEnds);
        ValueId a = op.args[0], b = op.args[1];
        if (!values_.same_of_both(a, b))
            refuse_mask(op, fmt::format("{} compares one thing of i with another of j", ir::info(op.code).name),
                        "the same function of both, such as floor(i / 16) == floor(j / 16), or where i - j < n");
        if (!values_.rises(a))
            refuse_mask(op, "what is compared may fall and rise again, so that what was left comes back",
                        "a function that never falls: i, floor(i / 16)");
        Opcode code = op.code;
        if (values_.sides(a) == kOfKey) {  // the other way round, as j <= i
            std::swap(a, b);
            code = code == Opcode::Lt   ? Opcode::Gt
                   : code == Opcode::Le ? Opcode::Ge
                   : code == Opcode::Gt ? Opcode::Lt
                   : code == Opcode::Ge ? Opcode::Le
                                        : code;
        }
        Sum one{{1, {}, {}, {}}}, equal{{1, {}, {}, {same(a)}}};
        if (code == Opcode::Ge) return one;
        if (code == Opcode::Lt) return {};
        if (code == Opcode::Eq || code == Opcode::Le) return equal;
        return plus(one, equal, -1, op);  // Gt and Ne
    }

    /// Nothing is left of the tokens before the first for which `v` has another value.
    MaskDecay same(ValueId v) {
        places_ = true;
        return {"same " + values_.key(v),
                [fn = fn_, v](const Arguments& at, const Arguments& before, const Tensor& like) {
                    return where(eq(replayed(fn, v, at, like), replayed(fn, v, before, like)), 0.0,
                                 -std::numeric_limits<double>::infinity());
                }};
    }

    MaskTerm single(ValueId v, bool inverse) {
        places_ = places_ || (values_.sides(v) != 0 && !values_.reads_tokens(v));
        const bool truth = fn_.op(v).type.dtype == DType::Bool;
        const MaskFactor factor{(inverse ? "1/" : "") + values_.key(v),
                                [fn = fn_, v, inverse, truth](const Arguments& at, const Tensor& like) {
                                    const Tensor x = replayed(fn, v, at, like);
                                    if (truth) return where(x, 1.0, 0.0);
                                    return inverse ? 1.0 / x : x;
                                }};
        MaskTerm term;
        (values_.sides(v) == kOfKey ? term.key : term.query).push_back(factor);
        return term;
    }

    static Sum plus(Sum a, const Sum& b, double by, const Op& op) {
        for (MaskTerm t : b) {
            t.number *= by;
            a.push_back(std::move(t));
        }
        check_count(a, op);
        return a;
    }

    static Sum product(const Sum& a, const Sum& b, const Op& op) {
        Sum all;
        for (const MaskTerm& x : a)
            for (const MaskTerm& y : b) {
                MaskTerm t = x;
                t.number *= y.number;
                t.query.insert(t.query.end(), y.query.begin(), y.query.end());
                t.key.insert(t.key.end(), y.key.begin(), y.key.end());
                t.decays.insert(t.decays.end(), y.decays.begin(), y.decays.end());
                all.push_back(std::move(t));
            }
        check_count(all, op);
        return all;
    }

    static void check_count(const Sum& all, const Op& op) {
        if (all.size() > kMostTerms)
            refuse_mask(op, fmt::format("more than {} terms, each of which has a state", kMostTerms), kSayWhereItEnds);
        for (const MaskTerm& t : all)
            if (t.query.size() + t.key.size() + t.decays.size() > kMostFactors)
                refuse_mask(op, fmt::format("a product of more than {} factors", kMostFactors), kSayWhereItEnds);
    }

    std::vector<Addend> addends(const Op& op) {
        auto all = values_.sum(op.args[0]);
        const bool apart =
            all && std::none_of(all->begin(), all->end(), [&](const Addend& a) { return values_.sides(a) == kOfBoth; });
        if (!apart)
            refuse_mask(op, fmt::format("{} of what is no sum of a function of i and one of j", ir::info(op.code).name),
                        kSayWhereItEnds);
        return *all;
    }

    /// The sum of some addends, of one place.
    [[nodiscard]] auto value_of(std::vector<Addend> some) const {
        return [fn = fn_, some = std::move(some)](const Arguments& at, const Tensor& like) {
            Tensor sum;
            for (const Addend& a : some) {
                Tensor x;
                for (const auto& [v, inverse] : a.factors) {
                    const Tensor f = replayed(fn, v, at, like);
                    if (!x.trace()) x = inverse ? 1.0 / f : f;
                    else x = inverse ? x / f : x * f;
                }
                x = x.trace() ? (a.number == 1 ? x : x * a.number) : like.trace()->constant(a.number, {});
                sum = sum.trace() ? sum + x : x;
            }
            return sum;
        };
    }
    [[nodiscard]] std::string key_of(const std::vector<Addend>& some) const {
        std::vector<std::string> keys;
        for (const Addend& a : some) keys.push_back(fmt::format("{}*{}", a.number, values_.key(a)));
        std::sort(keys.begin(), keys.end());
        return fmt::format("{}", fmt::join(keys, "+"));
    }
    bool reads_places(const std::vector<Addend>& some) const {
        for (const Addend& a : some)
            for (const auto& [v, inverse] : a.factors)
                if (values_.sides(v) != 0 && !values_.reads_tokens(v)) return true;
        return false;
    }

    /// exp(u(i) - u(j)) decays by exp(u(n) - u(n - 1)) from token to token; the rest is a factor of either.
    MaskTerm exponential(const Op& op) {
        std::vector<Addend> query, key, decay;
        for (Addend& a : addends(op)) {
            if (op.code == Opcode::Exp2) a.number *= std::numbers::ln2;
            (values_.sides(a) == kOfKey ? key : query).push_back(std::move(a));
        }
        for (Addend& a : query) {
            const auto other =
                std::find_if(key.begin(), key.end(), [&](const Addend& b) { return values_.key(a) == values_.key(b); });
            if (other == key.end() || values_.sides(a) == 0) continue;
            for (const auto& [v, inverse] : a.factors)
                if (values_.reads_tokens(v))
                    refuse_mask(
                        op, "exp of the difference of what two tokens bring",
                        "what a token brings decays by compose's decay: decay='scalar', with a g of every token");
            other->number += a.number;
            decay.push_back(a);
            a.number = 0;
        }
        for (std::vector<Addend>* some : {&query, &key})
            std::erase_if(*some, [](const Addend& a) { return std::fabs(a.number) == 0; });
        MaskTerm term;
        const auto factor = [&](const std::vector<Addend>& some) {
            places_ = places_ || reads_places(some);
            return MaskFactor{"exp " + key_of(some), [value = value_of(some)](const Arguments& at, const Tensor& like) {
                                  return exp(value(at, like));
                              }};
        };
        if (!query.empty()) term.query.push_back(factor(query));
        if (!key.empty()) term.key.push_back(factor(key));
        for (const Addend& a : decay) term.decays.push_back(decay_by(a));
        return term;
    }

    MaskDecay decay_by(const Addend& a) {
        Addend slope{a.number, {}};
        int of_place = 0;
        for (const auto& [v, inverse] : a.factors) {
            if (values_.sides(v) == 0) slope.factors.emplace_back(v, inverse);
            else of_place += values_.is_place(v) && !inverse ? 1 : 2;
        }
        const std::string key = "exp " + key_of({a});
        if (of_place == 1)  // c i: the same from every token to the next
            return {key, [value = value_of({slope})](const Arguments& at, const Arguments&, const Tensor& like) {
                        return value(at, like);
                    }};
        places_ = true;
        return {key, [value = value_of({a})](const Arguments& at, const Arguments& before, const Tensor& like) {
                    return value(at, like) - value(before, like);
                }};
    }

    /// cos(p + q) = cos p cos q - sin p sin q, and so on.
    Sum wave(const Op& op) {
        std::vector<Addend> query, key;
        for (Addend& a : addends(op)) (values_.sides(a) == kOfKey ? key : query).push_back(std::move(a));
        places_ = places_ || reads_places(query) || reads_places(key);
        const auto factor = [&](const std::vector<Addend>& some, bool is_cos) {
            return MaskFactor{(is_cos ? "cos " : "sin ") + key_of(some),
                              [value = value_of(some), is_cos](const Arguments& at, const Tensor& like) {
                                  return is_cos ? cos(value(at, like)) : sin(value(at, like));
                              }};
        };
        const auto both = [&](double number, bool query_cos, bool key_cos) {
            return MaskTerm{number, {factor(query, query_cos)}, {factor(key, key_cos)}, {}};
        };
        if (op.code == Opcode::Cos) return {both(1, true, true), both(-1, false, false)};
        return {both(1, false, true), both(1, true, false)};
    }

    const Function& fn_;
    MaskValues values_;
    ir::Known<Sum> sums_, conditions_;
    bool places_ = false;
};

}  // namespace

MaskTerms mask_terms(const Function& far, const std::vector<ir::InputDecl>& inputs) { return Terms(far, inputs).run(); }

void refuse_mask(const Op& op, const std::string& what, const std::string& hint) {
    throw CompileError(Diagnostic{"mask: " + what,
                                  "products and sums of functions of i alone and of j alone, exp(u(i) - u(j)), equal "
                                  "blocks (floor(i / 16) == floor(j / 16)); anything where i - j is less than a number",
                                  ir::info(op.code).name, op.where, hint});
}

}  // namespace forge::frontend
