/// What `compose` chooses from: one table per part, whose rows have a name, what it means, and all that is known of it.
/// Rules of what goes with what, and the recurrence (compose.cpp), go by these properties, never by a name.
#pragma once

#include <optional>

#include "forge/compose.h"

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

const std::vector<DecayChoice>& decay_choices();
const std::vector<GateChoice>& gate_choices();
const std::vector<FeatureChoice>& feature_choices();
const std::vector<UpdateChoice>& update_choices();
const std::vector<ReadChoice>& read_choices();
const std::vector<NormaliseChoice>& normalise_choices();
const std::vector<DiscretiseChoice>& discretise_choices();

/// The rows that a composition names. RuntimeError for names that there are not.
struct ChosenParts {
    const DecayChoice& decay;
    const GateChoice& gate;
    const FeatureChoice& features;
    const UpdateChoice& update;
    const ReadChoice& read;
    const NormaliseChoice& normalise;
    const DiscretiseChoice& discretise;
    std::int64_t rows;  ///< keys and values per token

    explicit ChosenParts(const Composition& chosen);
};

/// One token of the recurrence.
struct TokenParts {
    using Named = std::vector<std::pair<std::string, Tensor>>;
    const ChosenParts& parts;
    Named arguments, results = {};
    Tensor factor = {};  ///< what the state is multiplied by, with the axes that it lacks
    Tensor kept = {};    ///< the state after that
    Tensor angle = {}, angle_before = {};

    [[nodiscard]] Tensor operator[](const std::string& name) const;
    /// The features of a key, of the token or of the one before; its value.
    [[nodiscard]] Tensor key(std::int64_t row) const;
    [[nodiscard]] Tensor key_before(std::int64_t row) const;
    [[nodiscard]] Tensor of_row(const Tensor& rows, std::int64_t row) const;
    [[nodiscard]] Tensor value(std::int64_t row) const { return of_row((*this)["v"], row); }
    /// A product that decays as the state does, or by another factor of the same axes.
    [[nodiscard]] Product times(Product product, const Tensor& by) const;
};

}  // namespace forge::frontend
