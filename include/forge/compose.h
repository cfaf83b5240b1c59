/// Variants from the field's usual parts, by name: `compose` writes the recurrence of one token of what is chosen, and
/// compilation derives the rest of it.
///
///     forge::LinearAttention a = forge::compose({.decay = "vector", .features = "elu", .update = "delta"});
///
/// Two parts may be functions of one's own, of inputs that are declared with them.
///
/// `mask` is M(i, j), a number that the score of the query at place i with the key at place j <= i is multiplied by:
/// o_i = Σ_(j <= i) M(i, j) (q_i·k_j) v_j. It takes "i", "j", inputs per head, and of an input x of tokens "x_i" and
/// "x_j", and returns a number or a condition. Tokens as far apart as you say may have any mask: where i - j (or an
/// equal block of places) is compared with a number, that many keys and values are kept. What is left for tokens
/// farther apart must be a sum of products of functions of i and functions of j, of exp(u(i) - u(j)), which is a decay,
/// and of conditions that are true within a block: a state sums the keys of each. No length of chunks has a part in it.
///
///     forge::compose({.mask = {{"i", "j", "slope"}, [](const std::vector<forge::Tensor>& x) {
///                         return where(lt(x[0] - x[1], 16.0), 1.0, exp(-x[2] * (x[0] - x[1])));
///                     }}, .inputs = {{"slope", {H}, forge::kZeroToOne}}});
///
/// `transition` is the matrix that the state is multiplied by before a token is added, in place of a decay: S' = A S +
/// k vᵀ. It takes inputs of the token, "k", "v" and "q" among them, and states of your own as "prev_<name>". It returns
/// "diagonal", a number or a vector along the keys; with "left" and "right" it is diag(diagonal) + left rightᵀ; or
/// "matrix", all of A, an expression of identity() and outer(); or "angle" (and a "diagonal" that is a number): the
/// first half of the keys is turned against the second by these angles. A single result is the diagonal or the matrix,
/// by its axes. With it come the next values of the states of your own, by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "forge/language.h"

namespace forge {

/// A function of one's own: the names of what it takes, and what it makes of that.
struct CompositionFunction {
    std::vector<std::string> args;
    LinearAttention::PhaseFn fn;
    Location where = {};  ///< for messages
    [[nodiscard]] bool is_given() const { return static_cast<bool>(fn); }
};
/// An input of such functions: of tokens, {T, H, …}, or per head, {H, …}.
struct CompositionInput {
    std::string name;
    Shape shape;
    std::optional<Range> range = {};
    DType dtype = F32;
};
struct CompositionState {
    std::string name;
    Shape shape;  ///< without heads
};

/// One choice for every part; composition_parts() says what there is to choose from.
struct Composition {
    std::string decay = "none", gate = "log", features = "identity", update = "additive", read = "after",
                normalise = "none", discretise = "euler";
    std::int64_t rank = 2;  ///< keys and values per token, 2 to 8, of updates that have several
    std::string name = "";  ///< of the variant; empty: "composed" and the choices that are not the first
    CompositionFunction mask = {}, transition = {};
    std::vector<CompositionInput> inputs = {};
    std::vector<CompositionState> states = {};
    bool sequential = false;  ///< token by token, as LinearAttention::sequential: for any transition
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

/// Parts (rank and name too) and choices by name: {"update", "delta"}. "functions": those of one's own in text form,
/// declarations of inputs and states followed by func @mask {…}, func @transition {…}; "sequential": 1. RuntimeError
/// for a part or choice that there is not, with those that there are.
Composition composition_of(const std::vector<std::pair<std::string, std::string>>& chosen);

/// Why these choices make no variant together; empty if they make one.
std::string composition_refusal(const Composition& chosen);

/// The variant. RuntimeError for choices that there are not, and for those that make none, with the reason.
LinearAttention compose(const Composition& chosen, Here here = Here::current());

}  // namespace forge
