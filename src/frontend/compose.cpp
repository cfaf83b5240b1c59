// `compose`: the recurrence of one token, written of what is chosen for every part.
#include "forge/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "forge/error.h"
#include "frontend/compositions.h"

namespace forge {
namespace frontend {
namespace {

constexpr std::int64_t kLeastRank = 2, kMostRank = 8;

template <class Choice>
CompositionPart part_of(const char* name, const char* meaning, std::string Composition::* chosen,
                        const std::vector<Choice>& choices) {
    CompositionPart part{name, meaning, chosen, {}};
    for (const Choice& c : choices) part.choices.push_back({c.name, c.meaning});
    return part;
}

template <class Choice>
const Choice& chosen_of(const std::vector<Choice>& choices, const char* part, const std::string& name) {
    for (const Choice& c : choices)
        if (c.name == name) return c;
    std::string known;
    for (const Choice& c : choices) known += (known.empty() ? "" : ", ") + std::string(c.name);
    throw RuntimeError(fmt::format("compose: argument '{}': expected {}, got '{}'", part, known, name));
}

bool needs(const ChosenParts& parts, const char* what) {
    const auto in = [&](const std::vector<const char*>& names) {
        return std::any_of(names.begin(), names.end(), [&](const char* n) { return n == std::string(what); });
    };
    return in(parts.update.needs) || in(parts.discretise.needs);
}

/// What goes with what: the first rule that is broken, in words.
std::string refusal_of(const ChosenParts& parts) {
    const auto& [decay, gate, features, update, read, normalise, discretise, rows] = parts;
    const auto is = [](const char* part, const char* choice) { return fmt::format("{}='{}'", part, choice); };
    const std::string updated = is("update", update.name), decayed = is("decay", decay.name),
                      divided = is("normalise", normalise.name), by_rule = is("discretise", discretise.name);
    if (decay.factors == Factors::Nothing && &gate != &gate_choices()[0])
        return fmt::format("{} is the form of a decay, and {}", is("gate", gate.name), decayed);
    if (decay.factors == Factors::Value && update.reads == Reads::Keys)
        return updated + " reads the state with a key, and columns that decay apart have no common system";
    if (decay.factors == Factors::Key && update.reads == Reads::Values)
        return updated + " reads the state with a value, and rows that decay apart have no common system";
    if ((decay.factors == Factors::Key || decay.factors == Factors::Value) && update.by_numbers)
        return updated + " adds one matrix to another, which is a product of matrices for decays by numbers only";
    if (normalise.divides && update.reads != Reads::Nothing)
        return fmt::format("{} divides by a sum of weights, and {} takes values out again", divided, updated);
    if (normalise.divides && update.state)
        return fmt::format("{} divides by a sum of weights, and {} goes on adding them", divided, updated);
    if (normalise.divides && decay.factors == Factors::Value)
        return fmt::format("{} sums the weights of keys, and {} gives every value channel other weights", divided,
                           decayed);
    if (normalise.divides && !features.weights)
        return fmt::format("{} needs weights that are not negative, and {} are of any sign", divided,
                           is("features", features.name));
    if (discretise.products && update.state)
        return fmt::format("{} is a rule for an input that is added, and {} has its own", by_rule, updated);
    if (discretise.products && decay.factors == Factors::Nothing)
        return fmt::format("{} follows from a decay, and {}", by_rule, decayed);
    return "";
}

/// What a variant of these parts is declared with, and the names of it all in order: arguments of its step.
std::vector<std::string> declare(LinearAttention& a, const ChosenParts& parts) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    const bool turned = parts.features.turned != Turned::No;
    const Dim rows = parts.rows * T, keys = turned ? 2 * K : K;
    std::vector<std::string> names;
    const auto input = [&](const char* name, DType dtype, Shape shape, std::optional<Range> range = {}) {
        a.input(name, dtype, std::move(shape), 0, range);
        names.emplace_back(name);
    };
    const auto head = [&](const char* name, Shape shape, std::optional<Range> range) {
        a.head_input(name, F32, std::move(shape), range);
        names.emplace_back(name);
    };
    const auto state = [&](const char* name, Shape shape) {
        a.state(name, F32, std::move(shape));
        names.push_back(std::string("prev_") + name);
    };
    input("q", BF16, {T, H, keys}), input("k", BF16, {rows, H, keys}), input("v", BF16, {rows, H, V});
    if (parts.decay.per_head) head("g", {H}, parts.gate.range);
    else if (parts.decay.factors == Factors::Number) input("g", F32, {T, H}, parts.gate.range);
    else if (parts.decay.factors == Factors::Key) input("g", F32, {T, H, keys}, parts.gate.range);
    else if (parts.decay.factors == Factors::Value) input("g", F32, {T, H, V}, parts.gate.range);
    // Places times larger angles would round.
    if (parts.features.turned == Turned::ByPlace) head("theta", {H, K}, Range{0, 1.0 / 16});
    if (parts.features.turned == Turned::BySum) input("theta", F32, {T, H, K});
    if (needs(parts, "beta")) input("beta", F32, {rows, H}, kZeroToOne);
    if (needs(parts, "p")) input("p", BF16, {T, H, keys});
    if (needs(parts, "rate")) input("rate", F32, {T, H}, kZeroToOne);
    if (needs(parts, "mu")) input("mu", F32, {T, H});
    if (needs(parts, "mix")) input("mix", F32, {T, H}, kZeroToOne);
    state("s", {keys, V});
    if (needs(parts, "prev_m")) state("m", {keys, V});
    if (parts.normalise.divides) state("z", {keys});
    if (parts.features.turned == Turned::ByPlace) state("place", {});
    if (parts.features.turned == Turned::BySum) state("angle", {K});
    return names;
}

Results step_of(const ChosenParts& parts, const std::vector<std::string>& names, const std::vector<Tensor>& given) {
    TokenParts token{parts, {}};
    for (std::size_t i = 0; i < names.size(); ++i) token.arguments.emplace_back(names[i], given[i]);
    if (parts.features.turned == Turned::BySum) {
        token.angle_before = token["prev_angle"], token.angle = token.angle_before + token["theta"];
        token.results.emplace_back("angle", token.angle);
    }
    if (parts.features.turned == Turned::ByPlace) {
        token.angle = token["prev_place"] * token["theta"];
        token.angle_before = (token["prev_place"] - 1.0) * token["theta"];
        token.results.emplace_back("place", token["prev_place"] + 1.0);
    }
    const Tensor before = token["prev_s"];
    token.kept = before;
    Tensor numbers;  // the decay of what keys sum up to
    if (parts.decay.factors != Factors::Nothing) {
        numbers = token.factor = parts.gate.decay(token["g"]);
        if (parts.decay.factors == Factors::Key) token.factor = unsqueeze(token.factor, 1);
        if (parts.decay.factors == Factors::Value) token.factor = unsqueeze(token.factor, 0);
        token.kept = before * token.factor;
    }
    Tensor after = token.kept, sum = parts.normalise.divides ? token["prev_z"] : Tensor();
    if (parts.normalise.divides && numbers.trace()) sum = sum * numbers;
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
    const Tensor q = parts.features.map(token["q"], token.angle);
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

std::string name_of_choices(const Composition& chosen) {
    std::string name = "composed";
    for (const CompositionPart& part : composition_parts())
        if (const std::string& choice = chosen.*part.chosen; choice != part.choices[0].name) name += "_" + choice;
    if (chosen.rank != kLeastRank) name += fmt::format("_{}", chosen.rank);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

}  // namespace

ChosenParts::ChosenParts(const Composition& chosen)
    : decay(chosen_of(decay_choices(), "decay", chosen.decay)),
      gate(chosen_of(gate_choices(), "gate", chosen.gate)),
      features(chosen_of(feature_choices(), "features", chosen.features)),
      update(chosen_of(update_choices(), "update", chosen.update)),
      read(chosen_of(read_choices(), "read", chosen.read)),
      normalise(chosen_of(normalise_choices(), "normalise", chosen.normalise)),
      discretise(chosen_of(discretise_choices(), "discretise", chosen.discretise)),
      rows(update.rows ? chosen.rank : 1) {
    if (chosen.rank < kLeastRank || chosen.rank > kMostRank)
        throw RuntimeError(fmt::format("compose: argument 'rank': expected {} to {} keys per token, got {}", kLeastRank,
                                       kMostRank, chosen.rank));
}

Tensor TokenParts::operator[](const std::string& name) const {
    for (const auto& [known, tensor] : arguments)
        if (known == name) return tensor;
    throw InternalError(fmt::format("compose: a token without '{}'", name));
}

Tensor TokenParts::of_row(const Tensor& rows, std::int64_t row) const {
    return parts.update.rows ? select(rows, 0, row) : rows;
}

Tensor TokenParts::key(std::int64_t row) const { return parts.features.map(of_row((*this)["k"], row), angle); }

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

}  // namespace frontend

const std::vector<CompositionPart>& composition_parts() {
    using namespace frontend;  // NOLINT(google-build-using-namespace)
    static const std::vector<CompositionPart> kParts = {
        part_of("decay", "what the state is multiplied by", &Composition::decay, decay_choices()),
        part_of("gate", "what g, the input of the decay, is", &Composition::gate, gate_choices()),
        part_of("features", "of queries and keys", &Composition::features, feature_choices()),
        part_of("update", "the state after its decay", &Composition::update, update_choices()),
        part_of("read", "what queries read", &Composition::read, read_choices()),
        part_of("normalise", "what outputs are divided by", &Composition::normalise, normalise_choices()),
        part_of("discretise", "what is added of a key and a value", &Composition::discretise, discretise_choices()),
    };
    return kParts;
}

Composition composition_of(const std::vector<std::pair<std::string, std::string>>& chosen) {
    Composition made;
    std::string known;
    for (const CompositionPart& part : composition_parts()) known += part.name + ", ";
    for (const auto& [name, value] : chosen) {
        if (name == "name") {
            made.name = value;
            continue;
        }
        if (name == "rank") {
            const char* const end = value.data() + value.size();
            if (const auto read = std::from_chars(value.data(), end, made.rank);
                read.ec != std::errc() || read.ptr != end)
                throw RuntimeError(
                    fmt::format("compose: argument 'rank': expected a number of keys per token, got '{}'", value));
            continue;
        }
        const auto& parts = composition_parts();
        const auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.name == name; });
        if (part == parts.end())
            throw RuntimeError(fmt::format("compose: expected one of {}rank, name; got '{}'", known, name));
        made.*part->chosen = value;
    }
    frontend::ChosenParts{made};
    return made;
}

std::string composition_refusal(const Composition& chosen) {
    return frontend::refusal_of(frontend::ChosenParts(chosen));
}

LinearAttention compose(const Composition& chosen, Here here) {
    const auto parts = std::make_shared<const frontend::ChosenParts>(chosen);
    if (const std::string reason = frontend::refusal_of(*parts); !reason.empty())
        throw RuntimeError("compose: " + reason);
    LinearAttention a(chosen.name.empty() ? frontend::name_of_choices(chosen) : chosen.name, here);
    const std::vector<std::string> names = frontend::declare(a, *parts);
    a.step(names, LinearAttention::PhaseFn([parts, names](const std::vector<Tensor>& given) {
               return frontend::step_of(*parts, names, given);
           }),
           here);
    return a;
}

}  // namespace forge
