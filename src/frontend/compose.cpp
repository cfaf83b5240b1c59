// `compose`: the recurrence of one token, written of what is chosen for every part.
#include "forge/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "forge/error.h"
#include "frontend/compositions.h"
#include "ir/text.h"

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

/// What goes with a mask and a transition of one's own.
std::string refusal_of_own(const ChosenParts& parts) {
    const auto is = [](const char* part, const char* choice) { return fmt::format("{}='{}'", part, choice); };
    const bool masked = parts.mask.has_value(), moved = parts.transition.is_given();
    if (masked && (parts.update.state || parts.update.reads != Reads::Nothing))
        return fmt::format("a mask weighs what is added, and {} reads the state that it writes to",
                           is("update", parts.update.name));
    if (masked && parts.discretise.products)
        return fmt::format("a mask weighs keys as they come, and {} mixes them",
                           is("discretise", parts.discretise.name));
    const bool near = masked && parts.mask->window > 0;
    if (near && (parts.decay.factors != Factors::Nothing || moved))
        return fmt::format(
            "the mask keeps the last {} tokens as they are, and {} changes what is kept; write the decay "
            "into the mask",
            parts.mask->window, moved ? "a transition" : is("decay", parts.decay.name));
    if (near && (parts.features.turned != Turned::No || parts.update.rows))
        return fmt::format("the mask keeps the last {} tokens, one key each, and {}", parts.mask->window,
                           parts.update.rows ? is("update", parts.update.name) : is("features", parts.features.name));
    if (near && parts.sequential) return "a mask with a window has phases of its own, and sequential is a step alone";
    if (moved && parts.decay.factors != Factors::Nothing)
        return fmt::format("a transition takes the place of {}; multiply its diagonal by it",
                           is("decay", parts.decay.name));
    if (moved && parts.turned_by_transition && parts.features.turned != Turned::No)
        return fmt::format("the transition turns keys, as does {}", is("features", parts.features.name));
    if (moved && (parts.update.state && (parts.update.by_numbers || parts.update.reads == Reads::Values)))
        return fmt::format("a transition multiplies keys, and {} has one of its own", is("update", parts.update.name));
    if (moved && parts.normalise.divides)
        return fmt::format("{} divides by a sum of weights, and a transition may turn them",
                           is("normalise", parts.normalise.name));
    if (!moved && !parts.states.empty())
        return fmt::format("the state '{}' is a transition's, and there is none", parts.states[0].name);
    return "";
}

/// What goes with what: the first rule that is broken, in words.
std::string refusal_of(const ChosenParts& parts) {
    const auto& decay = parts.decay;
    const auto& gate = parts.gate;
    const auto& features = parts.features;
    const auto& update = parts.update;
    const auto& normalise = parts.normalise;
    const auto& discretise = parts.discretise;
    const auto is = [](const char* part, const char* choice) { return fmt::format("{}='{}'", part, choice); };
    const std::string updated = is("update", update.name), decayed = is("decay", decay.name),
                      divided = is("normalise", normalise.name), by_rule = is("discretise", discretise.name);
    if (const std::string own = refusal_of_own(parts); !own.empty()) return own;
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

/// What a transition of one's own is, of one token.
OwnTransition transition_of(const TokenParts& token) {
    const CompositionFunction& given = token.parts.transition;
    std::vector<Tensor> args;
    for (const std::string& name : given.args) args.push_back(token[name]);
    const Results results = given.fn(args);
    OwnTransition own;
    if (results.single.trace()) {
        (results.single.rank() == 2 ? own.matrix : own.diagonal) = results.single;
        return own;
    }
    for (const auto& [name, x] : results.named) {
        Tensor* const part = name == "diagonal" ? &own.diagonal
                             : name == "left"   ? &own.left
                             : name == "right"  ? &own.right
                             : name == "matrix" ? &own.matrix
                             : name == "angle"  ? &own.angle
                                                : nullptr;
        if (part) *part = x;
        else own.states.emplace_back(name, x);
    }
    return own;
}

void check_transition(const OwnTransition& own, const TokenParts& token) {
    const auto fault = [&](const std::string& what, const std::string& expected, const Tensor& at) {
        if (at.id() < 0) return;  // a mistake that is told already
        const ir::Op& op = at.trace()->fn.op(at.id());
        const Location& given = token.parts.transition.where;
        const Location& place = op.code == ir::Opcode::Param && given.known() ? given : op.where;
        throw CompileError(Diagnostic{"transition: " + what, expected, to_string(op.type), place, ""});
    };
    const Dim keys = token["k"].size(-1), angles = [&] {
        for (const auto& [name, x] : token.arguments)
            if (name == "prev_angle") return x.size(-1);
        return Dim(0);
    }();
    const auto of_keys = [&](const Tensor& x) { return x.rank() == 1 && x.size(0) == keys; };
    if (own.diagonal.trace() && own.diagonal.rank() != 0 && !of_keys(own.diagonal))
        fault("the diagonal is not along the keys", fmt::format("a number, or [{}]", to_string(keys)), own.diagonal);
    if (own.left.trace().get() != own.right.trace().get())
        fault("left and right come together: diag(diagonal) + left rightᵀ", "both",
              own.left.trace() ? own.left : own.right);
    for (const Tensor& x : {own.left, own.right})
        if (x.trace() && !of_keys(x)) fault("left and right are vectors along the keys", to_string(Shape{keys}), x);
    if (own.matrix.trace() && !(own.matrix.rank() == 2 && own.matrix.size(0) == keys && own.matrix.size(1) == keys))
        fault("the matrix does not take keys to keys", to_string(Shape{keys, keys}), own.matrix);
    if (own.matrix.trace() && (own.diagonal.trace() || own.left.trace() || own.angle.trace()))
        fault("a matrix is all of a transition", "matrix alone", own.matrix);
    if (own.angle.trace() && !(own.angle.rank() == 1 && own.angle.size(0) == angles))
        fault("there is an angle for each pair of channels", to_string(Shape{angles}), own.angle);
    if (own.angle.trace() && (own.left.trace() || (own.diagonal.trace() && own.diagonal.rank() != 0)))
        fault("what turns pairs of channels does not commute with it", "angle, and a diagonal that is a number",
              own.left.trace() ? own.left : own.diagonal);
    std::vector<std::string> missing;
    for (const ir::StateDecl& s : token.parts.states)
        if (std::none_of(own.states.begin(), own.states.end(), [&](const auto& r) { return r.first == s.name; }))
            missing.push_back(s.name);
    if (!missing.empty())
        throw CompileError(Diagnostic{fmt::format("transition: the next '{}' is not returned", missing[0]),
                                      "a value for every state of its own", "", token.parts.transition.where, ""});
}

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

Results step_of(const ChosenParts& parts, const std::vector<std::string>& names, const std::vector<Tensor>& given) {
    TokenParts token{parts, {}};
    for (std::size_t i = 0; i < names.size(); ++i) token.arguments.emplace_back(names[i], given[i]);
    if (parts.transition.is_given()) {
        token.own = transition_of(token);
        check_transition(*token.own, token);
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

/// The mask as a function of its own: arguments as a token's.
ir::Function traced_mask(const CompositionFunction& mask, const std::vector<ir::InputDecl>& inputs, Here here) {
    const auto trace = std::make_shared<Trace>("mask");
    std::vector<Tensor> args;
    for (const std::string& name : mask.args) {
        ir::Attrs attrs;
        attrs.name = name;
        ir::Type type{DType::F32, {}};
        const std::string base = without_place(name, inputs);
        for (const ir::InputDecl& in : inputs)
            if (in.name == base) type = ir::step_type(in), type.dtype = DType::F32, attrs.role = in.role;
        args.push_back(trace->record(ir::Opcode::Param, {}, attrs, mask.where.known() ? mask.where : here, type));
    }
    const Results results = mask.fn(args);
    const Tensor m = results.single.trace() || results.named.empty() ? results.single : results.named[0].second;
    if (!trace->diagnostics.empty()) throw CompileError(std::move(trace->diagnostics));
    if (m.trace() != trace || m.id() < 0)
        throw CompileError(Diagnostic{"mask: no result", "a number or a condition of i and j", "", here, ""});
    trace->fn.results.push_back({"mask", ir::Role::Input, m.id()});
    return std::move(trace->fn);
}

/// Whether a transition returns angles: it is called once, on arguments of which nothing is kept.
bool returns_angles(const CompositionFunction& transition, const ChosenParts& parts) {
    auto [K, V] = dims("K", "V");
    const auto trace = std::make_shared<Trace>("transition");
    std::vector<Tensor> args;
    for (const std::string& name : transition.args) {
        ir::Type type{DType::F32, {}};
        if (name == "q" || name == "k") type.shape = {2 * K};
        if (name == "v") type.shape = {V};
        for (const ir::InputDecl& in : parts.inputs)
            if (in.name == name) type = ir::step_type(in), type.dtype = DType::F32;
        for (const ir::StateDecl& s : parts.states)
            if (name == "prev_" + s.name) type.shape = s.type.shape;
        ir::Attrs attrs;
        attrs.name = name;
        args.push_back(trace->record(ir::Opcode::Param, {}, attrs, Location{}, type));
    }
    const Results results = transition.fn(args);
    return std::any_of(results.named.begin(), results.named.end(), [](const auto& r) { return r.first == "angle"; });
}

/// A function in text form, as one that is called.
CompositionFunction function_of_text(const ir::Function& fn) {
    CompositionFunction made;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param) made.args.push_back(op.attrs.name), made.where = op.where;
    made.fn = [fn, names = made.args](const std::vector<Tensor>& given) {
        const Arguments arguments = [&](const std::string& name) {
            return given[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
        };
        Tensor like;
        for (const Tensor& x : given) like = x;
        if (!like.trace())
            throw RuntimeError(fmt::format("compose: @{} takes nothing; expected an input of a token", fn.name));
        std::vector<std::pair<std::string, Tensor>> named;
        for (const ir::Result& r : fn.results) named.emplace_back(r.name, replayed(fn, r.value, arguments, like));
        Results results(named.size() == 1 ? named[0].second : Tensor());
        const bool single = named.size() == 1 && (named[0].first == "mask" || named[0].first == "o");
        if (!single) results.single = Tensor(), results.named = std::move(named);
        return results;
    };
    return made;
}

void take_functions(Composition& made, const std::string& text) {
    const ir::Fragment fragment = ir::parse_fragment(text, "functions");
    for (const ir::InputDecl& in : fragment.declared.inputs) {
        if (in.role == ir::Role::Scalar)
            throw RuntimeError(fmt::format("compose: scalar '{}': expected an input of tokens or per head", in.name));
        made.inputs.push_back({in.name, in.type.shape, in.range, in.type.dtype});
    }
    for (const ir::StateDecl& s : fragment.declared.states) made.states.push_back({s.name, s.type.shape});
    for (const ir::Function& fn : fragment.functions) {
        if (fn.name != "mask" && fn.name != "transition")
            throw RuntimeError(fmt::format("compose: functions: expected @mask and @transition, got @{}", fn.name));
        (fn.name == "mask" ? made.mask : made.transition) = function_of_text(fn);
    }
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
