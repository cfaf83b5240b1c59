// `compose`: what is chosen for every part, and the variant that is declared with it.
#include "forge/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "forge/error.h"
#include "frontend/compositions.h"
#include "frontend/own_functions.h"

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

/// What a variant of these parts is declared with, and the names of it all in order: arguments of its step.
std::vector<std::string> declare(LinearAttention& a, const ChosenParts& parts) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    const bool turned = parts.turned() != Turned::No;
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
    if (parts.turned() == Turned::ByPlace) head("theta", {H, K}, Range{0, 1.0 / 16});
    if (parts.features.turned == Turned::BySum) input("theta", F32, {T, H, K});
    if (needs(parts, "beta")) input("beta", F32, {rows, H}, kZeroToOne);
    if (needs(parts, "p")) input("p", BF16, {T, H, keys});
    if (needs(parts, "rate")) input("rate", F32, {T, H}, kZeroToOne);
    if (needs(parts, "mu")) input("mu", F32, {T, H});
    if (needs(parts, "mix")) input("mix", F32, {T, H}, kZeroToOne);
    const std::size_t sums = parts.mask_states().size();
    for (std::size_t i = 0; i < sums; ++i) state(numbered("s", i).c_str(), {keys, V});
    if (needs(parts, "prev_m")) state("m", {keys, V});
    for (std::size_t i = 0; i < sums && parts.normalise.divides; ++i) state(numbered("z", i).c_str(), {keys});
    const bool places = parts.mask && parts.mask->reads_places;
    if (parts.turned() == Turned::ByPlace || places) state("place", {});
    if (parts.turned() == Turned::BySum) state("angle", {K});
    declare_own(a, parts, names);
    return names;
}

std::string name_of_choices(const Composition& chosen) {
    std::string name = "composed";
    for (const CompositionPart& part : composition_parts())
        if (const std::string& choice = chosen.*part.chosen; choice != part.choices[0].name) name += "_" + choice;
    if (chosen.rank != kLeastRank) name += fmt::format("_{}", chosen.rank);
    if (chosen.mask.is_given()) name += "_masked";
    if (chosen.transition.is_given()) name += "_moved";
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

}  // namespace

std::vector<std::string> ChosenParts::mask_states() const {
    if (!mask) return {""};
    std::vector<std::string> names;
    for (const MaskTerm& t : mask->terms)
        if (!std::count(names.begin(), names.end(), t.state())) names.push_back(t.state());
    return names;
}

void declare_own(LinearAttention& a, const ChosenParts& parts, std::vector<std::string>& names) {
    for (const ir::InputDecl& in : parts.inputs) {
        if (std::count(names.begin(), names.end(), in.name))
            throw RuntimeError(fmt::format(
                "compose: argument 'inputs': '{}' is an input of the chosen parts; name yours differently", in.name));
        if (in.role == ir::Role::Input) a.input(in.name, in.type.dtype, in.type.shape, 0, in.range);
        else a.head_input(in.name, in.type.dtype, in.type.shape, in.range);
        names.push_back(in.name);
    }
    for (const ir::StateDecl& s : parts.states) {
        a.state(s.name, F32, s.type.shape);
        names.push_back("prev_" + s.name);
    }
}

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
    for (const CompositionInput& in : chosen.inputs) {
        const bool tokens = !in.shape.empty() && in.shape[0].symbol == ir::kTokenSymbol;
        if (in.shape.size() < (tokens ? 2U : 1U))
            throw RuntimeError(fmt::format("compose: input '{}': expected [T, heads, …] or [heads, …], got {}", in.name,
                                           to_string(in.shape)));
        inputs.push_back({in.name, tokens ? ir::Role::Input : ir::Role::Head, {in.dtype, in.shape}, 0, {}, in.range});
    }
    for (const CompositionState& s : chosen.states) states.push_back({s.name, {F32, s.shape}, {}});
    transition = chosen.transition;
    sequential = chosen.sequential;
    if (transition.is_given()) turned_by_transition = returns_angles(transition, *this);
    if (chosen.mask.is_given()) mask = decomposed(traced_mask(chosen.mask, inputs, Here::current()), inputs);
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
        if (name == "functions") {
            frontend::take_functions(made, value);
            continue;
        }
        if (name == "sequential") {
            made.sequential = value == "1";
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
    if (parts->mask && parts->mask->window > 0) {
        frontend::compose_window(a, parts, here);
        return a;
    }
    const std::vector<std::string> names = frontend::declare(a, *parts);
    if (parts->sequential) a.sequential();
    a.step(names, LinearAttention::PhaseFn([parts, names](const std::vector<Tensor>& given) {
               return frontend::step_of(*parts, names, given);
           }),
           here);
    return a;
}

}  // namespace forge
