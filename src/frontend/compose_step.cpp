// The recurrence of a composition: what one token does to its states and what it reads of them.
#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "frontend/compositions.h"
#include "frontend/own_functions.h"

namespace forge::frontend {
namespace {

/// Every state of a mask: its terms' keys are weighed and decay alike.
Tensor masked_step(TokenParts& token, const Tensor& q, const Arguments& at, const Arguments& before) {
    const ChosenParts& parts = token.parts;
    const std::vector<std::string> states = parts.mask_states();
    Tensor o, weights;
    for (std::size_t i = 0; i < states.size(); ++i) {
        const auto term = std::find_if(parts.mask->terms.begin(), parts.mask->terms.end(),
                                       [&](const MaskTerm& t) { return t.state() == states[i]; });
        const std::string name = numbered("s", i), sum_name = numbered("z", i);
        Tensor kept = token.moved(token["prev_" + name]), sum;
        if (parts.normalise.divides) sum = token.moved_sum(token["prev_" + sum_name]);
        for (const MaskDecay& d : term->decays) {
            const Tensor factor = exp(d.logarithm(at, before, q));
            kept = kept * factor;
            if (sum.trace()) sum = sum * factor;
        }
        Tensor after = kept, sum_after = sum;
        for (std::int64_t row = 0; row < parts.rows; ++row) {
            Tensor key = token.key(row);
            for (const MaskFactor& f : term->key) key = key * f.value(at, q);
            after = after + outer(key, token.value(row));
            if (sum.trace()) sum_after = sum_after + key;
        }
        token.results.emplace_back(name, after);
        if (sum.trace()) token.results.emplace_back(sum_name, sum_after);
        for (const MaskTerm& t : parts.mask->terms) {
            if (t.state() != states[i]) continue;
            Tensor query = t.number == 1 ? q : q * t.number;
            for (const MaskFactor& f : t.query) query = query * f.value(at, q);
            const Tensor read = matmul(query, parts.read.after ? after : kept);
            o = o.trace() ? o + read : read;
            if (!sum.trace()) continue;
            const Tensor weight = forge::sum(query * (parts.read.after ? sum_after : sum), 0);
            weights = weights.trace() ? weights + weight : weight;
        }
    }
    return weights.trace() ? o / (abs(weights) + 1e-3) : o;
}

}  // namespace

Results step_of(const ChosenParts& parts, const std::vector<std::string>& names, const std::vector<Tensor>& given) {
    TokenParts token{parts, {}};
    for (std::size_t i = 0; i < names.size(); ++i) token.arguments.emplace_back(names[i], given[i]);
    if (parts.transition.is_given()) {
        token.own = transition_of(token);
        token.results = token.own->states;
    }
    if (parts.turned() == Turned::BySum) {
        // S' = R S + k vᵀ is a sum where keys and queries are turned back by all angles so far.
        const Tensor angle = token.own && token.own->angle.trace() ? -token.own->angle : token["theta"];
        token.angle_before = token["prev_angle"], token.angle = token.angle_before + angle;
        token.results.emplace_back("angle", token.angle);
    }
    if (parts.features.turned == Turned::ByPlace) {
        token.angle = token["prev_place"] * token["theta"];
        token.angle_before = (token["prev_place"] - 1.0) * token["theta"];
        token.results.emplace_back("place", token["prev_place"] + 1.0);
    }
    if (parts.decay.factors != Factors::Nothing) {
        token.factor = token.numbers = parts.gate.decay(token["g"]);
        if (parts.decay.factors == Factors::Key) token.factor = unsqueeze(token.factor, 1);
        if (parts.decay.factors == Factors::Value) token.factor = unsqueeze(token.factor, 0);
    }
    const Tensor q = token.query();
    if (parts.mask) {
        Tensor place, last;
        if (parts.mask->reads_places) {
            place = token["prev_place"], last = maximum(place - 1.0, 0.0);
            if (parts.turned() != Turned::ByPlace) token.results.emplace_back("place", place + 1.0);
        }
        const auto at = [&](const Tensor& n) {
            return [&, n](const std::string& name) {
                return name == "i" || name == "j" ? n : token[without_place(name, parts.inputs)];
            };
        };
        const Tensor o = masked_step(token, q, at(place), at(last));
        token.results.emplace_back("o", o);
        Results results(o);
        results.named = std::move(token.results);
        return results;
    }
    const Tensor before = token["prev_s"];
    token.kept = token.moved(before);
    Tensor after = token.kept, sum = parts.normalise.divides ? token.moved_sum(token["prev_z"]) : Tensor();
    if (parts.update.state) after = parts.update.state(token);
    for (std::int64_t row = 0; row < parts.rows && !parts.update.state; ++row) {
        const std::vector<Product> products = parts.discretise.products
                                                  ? parts.discretise.products(token, row)
                                                  : std::vector<Product>{{token.key(row), token.value(row)}};
        for (const Product& p : products) {
            after = after + outer(p.key, p.value);
            if (parts.normalise.divides) sum = sum + p.key;
        }
    }
    Tensor o = matmul(q, parts.read.after ? after : before);
    if (parts.normalise.divides) {
        const Tensor weights = parts.read.after ? sum : token["prev_z"];
        o = o / (abs(forge::sum(q * weights, 0)) + 1e-3);
        token.results.emplace_back("z", sum);
    }
    token.results.emplace_back("s", after);
    token.results.emplace_back("o", o);
    Results results(o);
    results.named = std::move(token.results);
    return results;
}

Tensor TokenParts::operator[](const std::string& name) const {
    for (const auto& [known, tensor] : arguments)
        if (known == name) return tensor;
    std::string known;
    for (const auto& [each, tensor] : arguments) known += (known.empty() ? "" : ", ") + each;
    throw RuntimeError(fmt::format("compose: a function takes '{}'; expected one of {}", name, known));
}

Tensor TokenParts::of_row(const Tensor& rows, std::int64_t row) const {
    return parts.update.rows ? select(rows, 0, row) : rows;
}

Tensor TokenParts::turned(const Tensor& x) const {
    return parts.turned_by_transition ? turned_features(parts.features.map(x, angle), angle)
                                      : parts.features.map(x, angle);
}

Tensor TokenParts::query() const { return turned((*this)["q"]); }

Tensor TokenParts::key(std::int64_t row) const { return turned(of_row((*this)["k"], row)); }

Tensor TokenParts::moved(const Tensor& state) const {
    if (!own) return factor.trace() ? state * factor : state;
    if (own->matrix.trace()) return matmul(own->matrix, state);
    Tensor next = state;
    if (own->diagonal.trace()) next = state * (own->diagonal.rank() == 0 ? own->diagonal : unsqueeze(own->diagonal, 1));
    return own->left.trace() ? next + outer(own->left, matmul(own->right, state)) : next;
}

Tensor TokenParts::moved_sum(const Tensor& sum) const { return numbers.trace() ? sum * numbers : sum; }

Tensor TokenParts::key_before(std::int64_t row) const {
    return parts.features.map(of_row(prev_token((*this)["k"]), row), angle_before);
}

Product TokenParts::times(Product product, const Tensor& by) const {
    switch (parts.decay.factors) {
        case Factors::Nothing:
            break;
        case Factors::Number:
            product.key = product.key * by;
            break;
        case Factors::Key:
            product.key = product.key * squeeze(by, 1);
            break;
        case Factors::Value:
            product.value = product.value * squeeze(by, 0);
            break;
    }
    return product;
}

}  // namespace forge::frontend
