/// Variants from the field's usual parts, by name: `compose` writes the recurrence of one token of what is chosen, and
/// compilation derives the rest of it.
///
///     forge::LinearAttention a = forge::compose({.decay = "vector", .features = "elu", .update = "delta"});
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "forge/language.h"

namespace forge {

/// One choice for every part; composition_parts() says what there is to choose from.
struct Composition {
    std::string decay = "none", gate = "log", features = "identity", update = "additive", read = "after",
                normalise = "none", discretise = "euler";
    std::int64_t rank = 2;  ///< keys and values per token, 2 to 8, of updates that have several
    std::string name = "";  ///< of the variant; empty: "composed" and the choices that are not the first
};

/// A part, and what may be chosen for it. The first choice is the default.
struct CompositionPart {
    struct Choice {
        std::string name, meaning;
    };
    std::string name, meaning;
    std::string Composition::* chosen;
    std::vector<Choice> choices;
};
const std::vector<CompositionPart>& composition_parts();

/// Parts (rank and name too) and choices by name: {"update", "delta"}. RuntimeError for a part or choice that there is
/// not, with those that there are.
Composition composition_of(const std::vector<std::pair<std::string, std::string>>& chosen);

/// Why these choices make no variant together; empty if they make one.
std::string composition_refusal(const Composition& chosen);

/// The variant. RuntimeError for choices that there are not, and for those that make none, with the reason.
LinearAttention compose(const Composition& chosen, Here here = Here::current());

}  // namespace forge
