/// What `compose` chooses from: one table per part, whose rows have a name, what it means, and all that is known of it.
/// Rules of what goes with what (compose_rules.cpp) and the recurrence (compose_step.cpp) go by these properties, never
/// by a name.
#pragma once

#include <optional>

#include "forge/compose.h"
#include "frontend/mask.h"

namespace forge::frontend {

struct TokenParts;

/// Along which axis of the state factors differ; Nothing: there are none.
enum class Factors : std::uint8_t { Nothing, Number, Key, Value };
struct DecayChoice {
    const char *name, *meaning;
    Factors factors;
    bool per_head;  ///< a constant, not of every token
};

struct GateChoice {
    const char *name, *meaning;
    Tensor (*decay)(const Tensor& gate);
    std::optional<Range> range;
};

/// What queries and keys are turned by.
enum class Turned : std::uint8_t { No, ByPlace, BySum };
struct FeatureChoice {
    const char *name, *meaning;
    Tensor (*map)(const Tensor& x, const Tensor& angle);
    bool weights;  ///< never negative
    Turned turned;
};

/// With what an update reads the state that it writes to.
enum class Reads : std::uint8_t { Nothing, Keys, Values };
struct UpdateChoice {
    const char *name, *meaning;
    Reads reads;
    Tensor (*state)(TokenParts& token);  ///< after the token; nullptr: products of keys and values are added
    bool rows;                           ///< several keys and values per token
    bool by_numbers;                     ///< of states that decay by numbers only
    std::vector<const char*> needs;      ///< further inputs, and states (prev_…)
};

struct ReadChoice {
    const char *name, *meaning;
    bool after;
};

struct NormaliseChoice {
    const char *name, *meaning;
    bool divides;
};

/// A key and a value whose product is added to the state.
struct Product {
    Tensor key, value;
};
struct DiscretiseChoice {
    const char *name, *meaning;
    /// What is added instead; nullptr: the product itself.
    std::vector<Product> (*products)(const TokenParts& token, std::int64_t row);
    std::vector<const char*> needs;
};

/// The halves of x turned against each other by an angle per pair.
Tensor turned_features(const Tensor& x, const Tensor& angle);

const std::vector<DecayChoice>& decay_choices();
const std::vector<GateChoice>& gate_choices();
const std::vector<FeatureChoice>& feature_choices();
const std::vector<UpdateChoice>& update_choices();
const std::vector<ReadChoice>& read_choices();
const std::vector<NormaliseChoice>& normalise_choices();
const std::vector<DiscretiseChoice>& discretise_choices();

/// What a transition of one's own makes of a token, recorded into its trace.
struct OwnTransition {
    Tensor diagonal, left, right, matrix, angle;  ///< those that it has
    std::vector<std::pair<std::string, Tensor>> states;
};

/// The rows that a composition names. RuntimeError for names that there are not.
struct ChosenParts {
    const DecayChoice& decay;
    const GateChoice& gate;
    const FeatureChoice& features;
    const UpdateChoice& update;
    const ReadChoice& read;
    const NormaliseChoice& normalise;
    const DiscretiseChoice& discretise;
    std::int64_t rows;                       ///< keys and values per token
    std::vector<ir::InputDecl> inputs = {};  ///< of functions of one's own
    std::vector<ir::StateDecl> states = {};
    std::optional<Mask> mask = {};
    CompositionFunction transition = {};
    bool turned_by_transition = false;  ///< it returns angles
    bool sequential = false;

    explicit ChosenParts(const Composition& chosen);
    [[nodiscard]] Turned turned() const { return turned_by_transition ? Turned::BySum : features.turned; }
    /// The terms of the mask that have a state each, in its order: "s", "s2", ….
    [[nodiscard]] std::vector<std::string> mask_states() const;
};

/// The name of the index-th of several states.
inline std::string numbered(const std::string& name, std::size_t index) {
    return index == 0 ? name : name + std::to_string(index + 1);
}

/// What goes with what: the first rule that is broken, in words; empty: none.
std::string refusal_of(const ChosenParts& parts);

/// Declarations of inputs and states of one's own; names of all are added.
void declare_own(LinearAttention& a, const ChosenParts& parts, std::vector<std::string>& names);

/// A composition whose mask has a window: phases and a step that keep the last keys and values.
void compose_window(LinearAttention& a, const std::shared_ptr<const ChosenParts>& parts, Here here);

/// One token of the recurrence.
struct TokenParts {
    using Named = std::vector<std::pair<std::string, Tensor>>;
    const ChosenParts& parts;
    Named arguments, results = {};
    Tensor factor = {};   ///< what the state is multiplied by, with the axes that it lacks
    Tensor numbers = {};  ///< the same of what keys sum up to
    Tensor kept = {};     ///< the state after that
    Tensor angle = {}, angle_before = {};
    std::optional<OwnTransition> own = {};

    [[nodiscard]] Tensor operator[](const std::string& name) const;
    /// The features of a key, of the token or of the one before; its value.
    [[nodiscard]] Tensor key(std::int64_t row) const;
    [[nodiscard]] Tensor key_before(std::int64_t row) const;
    [[nodiscard]] Tensor of_row(const Tensor& rows, std::int64_t row) const;
    [[nodiscard]] Tensor value(std::int64_t row) const { return of_row((*this)["v"], row); }
    [[nodiscard]] Tensor query() const;
    [[nodiscard]] Tensor turned(const Tensor& x) const;  ///< its features
    /// A state after its decay or transition; a sum of keys after its decay.
    [[nodiscard]] Tensor moved(const Tensor& state) const;
    [[nodiscard]] Tensor moved_sum(const Tensor& sum) const;
    /// A product that decays as the state does, or by another factor of the same axes.
    [[nodiscard]] Product times(Product product, const Tensor& by) const;
};

/// The recurrence of one token, of the arguments of its step: their names, and what is given for them.
Results step_of(const ChosenParts& parts, const std::vector<std::string>& names, const std::vector<Tensor>& given);

}  // namespace forge::frontend
