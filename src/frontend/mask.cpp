#include "frontend/mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "ir/rebuild.h"
#include "ir/text.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr unsigned kOfQuery = 1, kOfKey = 2, kOfBoth = 3;
constexpr std::size_t kMostTerms = 8;
constexpr std::int64_t kMostWindow = 1024;

[[noreturn]] void refuse_mask(const Op& op, const std::string& what, const std::string& hint) {
    throw CompileError(Diagnostic{"mask: " + what,
                                  "products and sums of functions of i alone and of j alone, exp(u(i) - u(j)), equal "
                                  "blocks (floor(i / 16) == floor(j / 16)); anything where i - j is less than a number",
                                  ir::info(op.code).name, op.where, hint});
}

constexpr const char* kSayWhereItEnds =
    "say where it ends: where(i - j < 64, …, 0) may be any function of the last 64 tokens";

/// c times a product of values, some of them inverted.
struct Addend {
    double number = 1;
    std::vector<std::pair<ValueId, bool>> factors;
};

/// What is known of the values of a mask's function.
class Values {
  public:
    Values(const Function& fn, const std::vector<ir::InputDecl>& inputs) : fn_(fn) {
        for (ValueId v = 0; v < fn.size(); ++v) {
            const Op& op = fn.op(v);
            unsigned sides = 0;
            bool tokens = false;
            for (const ValueId a : op.args) sides |= sides_[at(a)], tokens = tokens || tokens_[at(a)];
            if (op.code == Opcode::Param) {
                const std::string base = without_place(op.attrs.name, inputs);
                tokens = base != op.attrs.name;
                if (op.attrs.name == "i" || (tokens && op.attrs.name.ends_with("_i"))) sides = kOfQuery;
                if (op.attrs.name == "j" || (tokens && op.attrs.name.ends_with("_j"))) sides = kOfKey;
            }
            sides_.push_back(sides);
            tokens_.push_back(tokens);
            keys_.push_back(key_of(op, inputs));
        }
    }

    [[nodiscard]] const Op& op(ValueId v) const { return fn_.op(v); }
    [[nodiscard]] unsigned sides(ValueId v) const { return sides_[at(v)]; }
    [[nodiscard]] bool reads_tokens(ValueId v) const { return tokens_[at(v)]; }  ///< an input of tokens
    [[nodiscard]] const std::string& key(ValueId v) const { return keys_[at(v)]; }
    [[nodiscard]] bool is_place(ValueId v) const {
        return op(v).code == Opcode::Param && (op(v).attrs.name == "i" || op(v).attrs.name == "j");
    }
    [[nodiscard]] std::optional<double> number(ValueId v) const {
        if (op(v).code == Opcode::Constant) return op(v).attrs.value;
        if (op(v).code == Opcode::To) return number(op(v).args[0]);
        return std::nullopt;
    }

    /// The value as a sum of products of values that are of one place each; nullopt if it is none.
    [[nodiscard]] std::optional<std::vector<Addend>> sum(ValueId v) const {
        const Op& o = op(v);
        if (const auto n = number(v)) return *n == 0 ? std::vector<Addend>{} : std::vector<Addend>{{*n, {}}};
        const auto arg = [&](std::size_t i) { return sum(o.args[i]); };
        switch (o.code) {
            case Opcode::To:
                if (o.type.dtype != DType::F32 || op(o.args[0]).type.dtype == DType::Bool) break;
                return arg(0);
            case Opcode::Neg:
                if (auto a = arg(0)) return merged(scaled(std::move(*a), -1), {});
                return std::nullopt;
            case Opcode::Add:
            case Opcode::Sub: {
                auto a = arg(0), b = arg(1);
                if (!a || !b) return std::nullopt;
                return merged(std::move(*a), scaled(std::move(*b), o.code == Opcode::Sub ? -1 : 1));
            }
            case Opcode::Mul: {
                const auto a = arg(0), b = arg(1);
                if (!a || !b) return std::nullopt;
                std::vector<Addend> all;
                for (const Addend& x : *a)
                    for (const Addend& y : *b) {
                        all.push_back({x.number * y.number, x.factors});
                        all.back().factors.insert(all.back().factors.end(), y.factors.begin(), y.factors.end());
                    }
                return merged(std::move(all), {});
            }
            case Opcode::Div: {
                auto a = arg(0);
                const auto by = number(o.args[1]);
                if (!a || sides(o.args[1]) == kOfBoth) return std::nullopt;
                for (Addend& x : *a) {
                    if (by) x.number /= *by;
                    else x.factors.emplace_back(o.args[1], true);
                }
                return a;
            }
            default:
                break;
        }
        if (sides(v) == kOfBoth) return std::nullopt;
        return std::vector<Addend>{{1, {{v, false}}}};
    }

    [[nodiscard]] std::string key(const Addend& a) const {
        std::vector<std::string> names;
        for (const auto& [v, inverse] : a.factors) names.push_back((inverse ? "1/" : "") + key(v));
        std::sort(names.begin(), names.end());
        return fmt::format("{}", fmt::join(names, "*"));
    }
    [[nodiscard]] unsigned sides(const Addend& a) const {
        unsigned all = 0;
        for (const auto& [v, inverse] : a.factors) all |= sides(v);
        return all;
    }
    /// (s, c) of s (i - j) + c.
    [[nodiscard]] std::optional<std::pair<double, double>> distance(ValueId a, ValueId b) const {
        auto x = sum(a), y = sum(b);
        if (!x || !y) return std::nullopt;
        double query = 0, key = 0, number = 0;
        for (const Addend& t : merged(std::move(*x), scaled(std::move(*y), -1))) {
            if (t.factors.empty()) number += t.number;
            else if (t.factors.size() > 1 || t.factors[0].second || !is_place(t.factors[0].first)) return std::nullopt;
            else (sides(t) == kOfQuery ? query : key) += t.number;
        }
        if (query == 0 || query != -key) return std::nullopt;
        return std::pair{query, number};
    }
    /// Whether it never falls as its place goes on.
    [[nodiscard]] bool rises(ValueId v) const {
        const Op& o = op(v);
        const auto positive = [&](std::size_t i) { return number(o.args[i]).value_or(-1) > 0; };
        switch (o.code) {
            case Opcode::Param:
                return is_place(v);
            case Opcode::Floor:
            case Opcode::Ceil:
            case Opcode::Round:
                return rises(o.args[0]);
            case Opcode::Div:
                return rises(o.args[0]) && positive(1);
            case Opcode::Mul:
                return (rises(o.args[0]) && positive(1)) || (rises(o.args[1]) && positive(0));
            case Opcode::Add:
                return (rises(o.args[0]) && sides(o.args[1]) == 0) || (rises(o.args[1]) && sides(o.args[0]) == 0);
            case Opcode::Sub:
                return rises(o.args[0]) && sides(o.args[1]) == 0;
            default:
                return false;
        }
    }
    /// Of a floor(place / n), how many tokens it is the same for; 0 if it is none.
    [[nodiscard]] std::int64_t block(ValueId v) const {
        const Op& o = op(v);
        if (o.code != Opcode::Floor || op(o.args[0]).code != Opcode::Div || !is_place(op(o.args[0]).args[0])) return 0;
        const double n = number(op(o.args[0]).args[1]).value_or(0);
        return n >= 1 && n <= kMostWindow ? static_cast<std::int64_t>(std::ceil(n)) : 0;
    }
    /// Whether both say the same of their places, i and j.
    [[nodiscard]] bool same_of_both(ValueId a, ValueId b) const {
        return (sides(a) | sides(b)) == kOfBoth && sides(a) != kOfBoth && sides(b) != kOfBoth && key(a) == key(b);
    }

  private:
    static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }
    static std::vector<Addend> scaled(std::vector<Addend> all, double by) {
        for (Addend& a : all) a.number *= by;
        return all;
    }
    /// Sums of both, with what is the same in one; i's and j's are told apart.
    [[nodiscard]] std::vector<Addend> merged(std::vector<Addend> a, std::vector<Addend> b) const {
        std::vector<Addend> all;
        a.insert(a.end(), b.begin(), b.end());
        for (Addend& x : a) {
            const auto same = [&](const Addend& y) { return sides(x) == sides(y) && key(x) == key(y); };
            const auto it = sides(x) == kOfBoth ? all.end() : std::find_if(all.begin(), all.end(), same);
            if (it == all.end()) all.push_back(std::move(x));
            else it->number += x.number;
        }
        std::erase_if(all, [](const Addend& x) { return x.number == 0; });
        return all;
    }
    [[nodiscard]] std::string key_of(const Op& op, const std::vector<ir::InputDecl>& inputs) const {
        if (op.code == Opcode::Param) {
            const bool place = op.attrs.name == "i" || op.attrs.name == "j";
            return place ? "n" : without_place(op.attrs.name, inputs);
        }
        std::string text = fmt::format("{}[{} {} {} {} {}](", ir::info(op.code).name, op.attrs.value, op.attrs.dim,
                                       op.attrs.start, op.attrs.count, to_string(op.type));
        for (const ValueId a : op.args) text += keys_[at(a)] + ",";
        return text + ")";
    }

    const Function& fn_;
    std::vector<unsigned> sides_;
    std::vector<bool> tokens_;
    std::vector<std::string> keys_;
};

bool is_comparison(Opcode code) { return ir::info(code).kind == ir::OpInfo::Kind::Compare; }

/// What a comparison of s d + c with 0 says of all d from the returned number on.
std::pair<bool, std::int64_t> far_truth(Opcode code, double s, double c) {
    const double border = -c / s;
    const bool rising = s > 0;
    const bool strict = (code == Opcode::Lt || code == Opcode::Ge) == rising &&
                        (code == Opcode::Lt || code == Opcode::Ge || code == Opcode::Gt || code == Opcode::Le);
    const double from = strict ? std::ceil(border) : std::floor(border) + 1;
    const bool truth = code == Opcode::Ne ||
                       (rising ? code == Opcode::Gt || code == Opcode::Ge : code == Opcode::Lt || code == Opcode::Le);
    return {truth, static_cast<std::int64_t>(std::clamp(from, 0.0, 1e9))};
}

/// A mask's function as it is of tokens far from one another: what compares their distance with a number is decided.
class Far {
  public:
    Far(const Function& fn, const std::vector<ir::InputDecl>& inputs, bool blocks)
        : fn_(fn), values_(fn, inputs), blocks_(blocks) {}

    std::int64_t window = 0;

    Function run() {
        ValueId at = 0;
        return ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const ValueId v = at++;
            decided_.push_back(decided(v));
            return made(out, op, std::move(args));
        });
    }

  private:
    std::optional<bool> decided(ValueId v) {
        const Op& op = fn_.op(v);
        if (!is_comparison(op.code)) return std::nullopt;
        const ValueId a = op.args[0], b = op.args[1];
        const auto so = [&](bool truth, std::int64_t from) {
            window = std::max(window, from);
            return truth;
        };
        if (const auto d = values_.distance(a, b)) {
            const auto [truth, from] = far_truth(op.code, d->first, d->second);
            return so(truth, from);
        }
        const std::int64_t block = values_.same_of_both(a, b) && blocks_ ? values_.block(a) : 0;
        if (block == 0) return std::nullopt;
        const bool query_first = values_.sides(a) == kOfQuery;
        const bool later = op.code == Opcode::Gt || op.code == Opcode::Ge;
        const bool earlier = op.code == Opcode::Lt || op.code == Opcode::Le;
        return so(op.code == Opcode::Ne || (query_first ? later : earlier), block);
    }

    ValueId made(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto truth = [&](std::size_t i) {
            return decided_[static_cast<std::size_t>(fn_.op(static_cast<ValueId>(decided_.size() - 1)).args[i])];
        };
        const auto number = [&](double x) {
            Op constant{Opcode::Constant, {DType::F32, {}}, {}, {}, "", op.where, std::nullopt};
            constant.attrs.value = x;
            return out.add(constant);
        };
        if (decided_.back()) return number(*decided_.back() ? 1 : 0);
        if (op.code == Opcode::Where && truth(0)) return args[*truth(0) ? 1 : 2];
        if (op.code == Opcode::To && truth(0)) return args[0];
        if (op.code == Opcode::Minimum || op.code == Opcode::Maximum) {
            const Op& own = fn_.op(static_cast<ValueId>(decided_.size() - 1));
            if (const auto d = values_.distance(own.args[0], own.args[1])) {
                const auto [less, from] = far_truth(Opcode::Lt, d->first, d->second);
                window = std::max(window, from);
                return args[less == (op.code == Opcode::Minimum) ? 0 : 1];
            }
        }
        return ir::keep(out, op, std::move(args));
    }

    const Function& fn_;
    Values values_;
    bool blocks_;
    std::vector<std::optional<bool>> decided_;
};

/// A mask's function as a sum of terms.
class Terms {
  public:
    Terms(const Function& fn, const std::vector<ir::InputDecl>& inputs) : fn_(fn), values_(fn, inputs) {}

    bool places = false;

    std::vector<MaskTerm> run() {
        const ValueId v = fn_.results[0].value;
        return fn_.op(v).type.dtype == DType::Bool ? condition(v) : of(v);
    }

  private:
    using Sum = std::vector<MaskTerm>;

    Sum of(ValueId v) {
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
        const Sum one{{1, {}, {}, {}}}, equal{{1, {}, {}, {same(a)}}};
        if (code == Opcode::Ge) return one;
        if (code == Opcode::Lt) return {};
        if (code == Opcode::Eq || code == Opcode::Le) return equal;
        return plus(one, equal, -1, op);  // Gt and Ne
    }

    /// Nothing is left of the tokens before the first for which `v` has another value.
    MaskDecay same(ValueId v) {
        places = true;
        return {"same " + values_.key(v),
                [fn = fn_, v](const Arguments& at, const Arguments& before, const Tensor& like) {
                    return where(eq(replayed(fn, v, at, like), replayed(fn, v, before, like)), 0.0,
                                 -std::numeric_limits<double>::infinity());
                }};
    }

    MaskTerm single(ValueId v, bool inverse) {
        places = places || (values_.sides(v) != 0 && !values_.reads_tokens(v));
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
            places = places || reads_places(some);
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
        places = true;
        return {key, [value = value_of({a})](const Arguments& at, const Arguments& before, const Tensor& like) {
                    return value(at, like) - value(before, like);
                }};
    }

    /// cos(p + q) = cos p cos q - sin p sin q, and so on.
    Sum wave(const Op& op) {
        std::vector<Addend> query, key;
        for (Addend& a : addends(op)) (values_.sides(a) == kOfKey ? key : query).push_back(std::move(a));
        places = places || reads_places(query) || reads_places(key);
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
    Values values_;
};

/// Whether i and j stand nowhere but in i - j.
bool reads_distances_only(const Function& fn) {
    for (const Op& op : fn.ops) {
        const auto place = [&](ValueId v) {
            const Op& arg = fn.op(v);
            return arg.code == Opcode::Param && (arg.attrs.name == "i" || arg.attrs.name == "j") ? arg.attrs.name : "";
        };
        for (const ValueId a : op.args)
            if (!place(a).empty() && (op.code != Opcode::Sub || place(op.args[0]).empty() ||
                                      place(op.args[1]).empty() || place(op.args[0]) == place(op.args[1])))
                return false;
    }
    return true;
}

void check_mask(const Function& fn, const std::vector<ir::InputDecl>& inputs) {
    const auto fault = [](const std::string& what, const std::string& expected, const std::string& got,
                          const Location& where) {
        throw CompileError(Diagnostic{"mask: " + what, expected, got, where, ""});
    };
    if (fn.results.size() != 1) fault("several results", "one number", std::to_string(fn.results.size()), {});
    const Op& result = fn.op(fn.results[0].value);
    if (!result.type.shape.empty())
        fault("a result with axes", "a number for each pair of tokens", to_string(result.type), result.where);
    std::vector<ValueId> places;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == Opcode::Param && (fn.op(v).attrs.name == "i" || fn.op(v).attrs.name == "j"))
            places.push_back(v);
    const std::vector<bool> of_places = ir::depends_on(fn, places);
    for (ValueId v = 0; v < fn.size(); ++v)  // where places are rows and columns of a matrix, axes would be others
        if (of_places[static_cast<std::size_t>(v)] && !fn.op(v).type.shape.empty())
            fault("axes of what depends on places", "numbers", to_string(fn.op(v).type), fn.op(v).where);
    for (const Op& op : fn.ops) {
        if (op.code != Opcode::Param || op.attrs.name == "i" || op.attrs.name == "j") continue;
        const std::string base = without_place(op.attrs.name, inputs);
        const auto in = std::find_if(inputs.begin(), inputs.end(), [&](const auto& x) { return x.name == base; });
        if (in == inputs.end())
            fault(fmt::format("unknown input '{}'", op.attrs.name), "i, j, or one of the inputs declared with it", "",
                  op.where);
        if (in->role == ir::Role::Input && base == op.attrs.name)
            fault(fmt::format("'{}' is an input of tokens, and there are two", base),
                  fmt::format("{0}_i, of the query's token, or {0}_j, of the key's", base), "", op.where);
    }
}

}  // namespace

std::string without_place(const std::string& name, const std::vector<ir::InputDecl>& inputs) {
    if (!name.ends_with("_i") && !name.ends_with("_j")) return name;
    const std::string base = name.substr(0, name.size() - 2);
    const bool known = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const auto& in) { return in.name == base && in.role == ir::Role::Input; });
    return known ? base : name;
}

Tensor replayed(const ir::Function& fn, ir::ValueId v, const Arguments& arguments, const Tensor& like) {
    const std::vector<bool> needed = ir::needed_for(fn, {v});
    std::vector<Tensor> values(fn.ops.size());
    for (ValueId at = 0; at <= v; ++at) {
        if (!needed[static_cast<std::size_t>(at)]) continue;
        const Op& op = fn.op(at);
        Tensor& made = values[static_cast<std::size_t>(at)];
        if (op.code == Opcode::Param) {
            made = arguments(op.attrs.name);
            continue;
        }
        std::vector<Tensor> args;
        for (const ValueId a : op.args) args.push_back(values[static_cast<std::size_t>(a)]);
        made = like.trace()->record(op.code, args, op.attrs, op.where, op.type);
    }
    return values[static_cast<std::size_t>(v)];
}

std::string MaskTerm::state() const {
    std::vector<std::string> names;
    for (const MaskFactor& f : key) names.push_back(f.key);
    for (const MaskDecay& d : decays) names.push_back("decay " + d.key);
    std::sort(names.begin(), names.end());
    return fmt::format("{}", fmt::join(names, "; "));
}

Mask decomposed(ir::Function mask, const std::vector<ir::InputDecl>& inputs) {
    check_mask(mask, inputs);
    std::optional<CompileError> first;
    for (const bool blocks : {false, true}) {  // blocks are near only where they are not far: states cost less
        Far far(mask, inputs, blocks);
        Mask made{mask, far.run(), 0, {}};
        made.window = far.window;
        if (made.window > kMostWindow)
            refuse_mask(mask.op(mask.results[0].value),
                        fmt::format("a window of {} tokens, of which all keys and values are kept", made.window),
                        fmt::format("at most {}", kMostWindow));
        try {
            Terms terms(made.far, inputs);
            made.terms = terms.run();
            made.terms_read_places = terms.places;
        } catch (const CompileError& refused) {
            if (!first) first = refused;
            continue;
        }
        made.reads_places = made.terms_read_places || (made.window > 0 && !reads_distances_only(mask));
        return made;
    }
    throw *first;
}

}  // namespace forge::frontend
