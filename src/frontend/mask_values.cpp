#include "frontend/mask_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "frontend/mask.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr std::size_t kMostOfSum = 256;  ///< of a sum

std::vector<Addend> scaled(std::vector<Addend> all, double by) {
    for (Addend& a : all) a.number *= by;
    return all;
}

}  // namespace

MaskValues::MaskValues(const Function& fn, const std::vector<ir::InputDecl>& inputs) : fn_(fn) {
    std::map<std::string, ValueId> firsts;
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
        first_.push_back(firsts.emplace(keys_.back(), v).first->second);
    }
}

std::optional<double> MaskValues::number(ValueId v) const {
    if (op(v).code == Opcode::Constant) return op(v).attrs.value;
    if (op(v).code == Opcode::To) return number(op(v).args[0]);
    return std::nullopt;
}

std::optional<std::vector<Addend>> MaskValues::sum(ValueId v) const {
    return sums_.at(v, [&]() -> std::optional<std::vector<Addend>> {
        auto all = worked_out(v);
        std::size_t factors = 0;
        for (const Addend& a : all.value_or(std::vector<Addend>{})) factors += 1 + a.factors.size();
        return factors <= kMostOfSum ? all : std::nullopt;
    });
}

std::optional<std::vector<Addend>> MaskValues::worked_out(ValueId v) const {
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

std::string MaskValues::key(const Addend& a) const {
    std::vector<std::string> names;
    for (const auto& [v, inverse] : a.factors) names.push_back((inverse ? "1/" : "") + key(v));
    std::sort(names.begin(), names.end());
    return fmt::format("{}", fmt::join(names, "*"));
}

unsigned MaskValues::sides(const Addend& a) const {
    unsigned all = 0;
    for (const auto& [v, inverse] : a.factors) all |= sides(v);
    return all;
}

std::optional<std::pair<double, double>> MaskValues::distance(ValueId a, ValueId b) const {
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

bool MaskValues::rises(ValueId v) const {
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

std::int64_t MaskValues::block(ValueId v) const {
    const Op& o = op(v);
    if (o.code != Opcode::Floor || op(o.args[0]).code != Opcode::Div || !is_place(op(o.args[0]).args[0])) return 0;
    const double n = number(op(o.args[0]).args[1]).value_or(0);
    return n >= 1 && n <= kMostWindow ? static_cast<std::int64_t>(std::ceil(n)) : 0;
}

bool MaskValues::same_of_both(ValueId a, ValueId b) const {
    return (sides(a) | sides(b)) == kOfBoth && sides(a) != kOfBoth && sides(b) != kOfBoth && key(a) == key(b);
}

std::vector<Addend> MaskValues::merged(std::vector<Addend> a, std::vector<Addend> b) const {
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

std::string MaskValues::key_of(const Op& op, const std::vector<ir::InputDecl>& inputs) const {
    if (op.code == Opcode::Param) {
        const bool place = op.attrs.name == "i" || op.attrs.name == "j";
        return place ? "n" : without_place(op.attrs.name, inputs);
    }
    std::string text = fmt::format("{}[{} {} {} {} {}](", ir::info(op.code).name, op.attrs.value, op.attrs.dim,
                                   op.attrs.start, op.attrs.count, to_string(op.type));
    for (const ValueId a : op.args)
        text += fn_.op(a).code == Opcode::Param ? keys_[at(a)] + "," : fmt::format("#{},", first_[at(a)]);
    return text + ")";
}

}  // namespace forge::frontend
