// What goes with what among the parts of a composition; the reason, in words, where something does not.
#include <fmt/format.h>

#include "frontend/compositions.h"

namespace forge::frontend {
namespace {

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

}  // namespace

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

}  // namespace forge::frontend
