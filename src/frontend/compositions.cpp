// The tables of `compose`.
#include "frontend/compositions.h"

namespace forge::frontend {
namespace {

Tensor same_features(const Tensor& x, const Tensor& /*angle*/) { return x; }
Tensor elu_plus_one(const Tensor& x, const Tensor& /*angle*/) {
    return where(gt(x, 0.0), x + 1.0, exp(minimum(x, 0.0)));
}
Tensor softmax_features(const Tensor& x, const Tensor& /*angle*/) { return softmax(x, -1); }
Tensor unit_features(const Tensor& x, const Tensor& /*angle*/) { return l2norm(x); }
Tensor squared_features(const Tensor& x, const Tensor& /*angle*/) { return square(x); }

Tensor exponential(const Tensor& gate) { return exp(gate); }
Tensor sigmoid_of(const Tensor& gate) { return sigmoid(gate); }

/// The delta rule, once for every key: what a key reads is replaced by its value, so far as beta says.
Tensor corrected(TokenParts& token) {
    Tensor state = token.kept;
    for (std::int64_t row = 0; row < token.parts.rows; ++row) {
        const Tensor unit = l2norm(token.key(row));
        state = state + outer(unit, (token.value(row) - matmul(unit, state)) * token.of_row(token["beta"], row));
    }
    return state;
}

/// Oja's rule, the same on the other side: what a value reads is replaced by its key.
Tensor corrected_by_values(TokenParts& token) {
    const Tensor unit = l2norm(token.value(0));
    return token.kept + outer((token.key(0) - matmul(token.kept, unit)) * token["beta"], unit);
}

/// Diagonal plus low rank: what p reads, before the decay, is erased.
Tensor erased(TokenParts& token) {
    const Tensor unit = l2norm(token["p"]);
    return token.kept - outer(unit * token["rate"], matmul(unit, token["prev_s"])) +
           outer(token.key(0), token.value(0));
}

Tensor with_momentum(TokenParts& token) {
    const Tensor momentum =
        token["prev_m"] * sigmoid(token["mu"]) + outer(token.key(0), token.value(0) * token["beta"]);
    token.results.emplace_back("m", momentum);
    return token.kept + momentum;
}

/// Exact for an input that is constant over the token.
std::vector<Product> held(const TokenParts& token, std::int64_t row) {
    return {token.times({token.key(row), token.value(row)}, 1.0 - token.factor)};
}

/// A mean of this token's input and the last one's, which has decayed since.
std::vector<Product> trapezoid(const TokenParts& token, std::int64_t row) {
    const Tensor mix = token["mix"];
    const Product before{token.key_before(row) * (1.0 - mix), token.of_row(prev_token(token["v"]), row)};
    return {token.times(before, token.factor), {token.key(row) * mix, token.value(row)}};
}

}  // namespace

Tensor turned_features(const Tensor& x, const Tensor& angle) {
    const Tensor a = part(x, -1, 0, 2), b = part(x, -1, 1, 2), c = cos(angle), s = sin(angle);
    return concat({a * c - b * s, b * c + a * s}, -1);
}

const std::vector<DecayChoice>& decay_choices() {
    static const std::vector<DecayChoice> kChoices = {
        {"none", "the state stays as it is", Factors::Nothing, false},
        {"head", "by a constant g per head", Factors::Number, true},
        {"scalar", "by a number per token", Factors::Number, false},
        {"vector", "by a factor per key channel", Factors::Key, false},
        {"value", "by a factor per value channel", Factors::Value, false},
    };
    return kChoices;
}

const std::vector<GateChoice>& gate_choices() {
    static const std::vector<GateChoice> kChoices = {
        {"log", "the logarithm of the decay", exponential, kLogDecays},
        {"raw", "before a sigmoid", sigmoid_of, {}},
    };
    return kChoices;
}

const std::vector<FeatureChoice>& feature_choices() {
    static const std::vector<FeatureChoice> kChoices = {
        {"identity", "as they are", same_features, false, Turned::No},
        {"elu", "elu(x) + 1", elu_plus_one, true, Turned::No},
        {"softmax", "weights that sum to 1", softmax_features, true, Turned::No},
        {"cosine", "of unit length", unit_features, false, Turned::No},
        {"squared", "x², elementwise", squared_features, true, Turned::No},
        {"rotary", "turned by the place times theta per head", turned_features, false, Turned::ByPlace},
        {"rotary-data", "turned by the sum of theta so far", turned_features, false, Turned::BySum},
    };
    return kChoices;
}

const std::vector<UpdateChoice>& update_choices() {
    static const std::vector<UpdateChoice> kChoices = {
        {"additive", "S + k vᵀ", Reads::Nothing, nullptr, false, false, {}},
        {"delta", "S + beta k (v - Sᵀ k)ᵀ, k of unit length", Reads::Keys, corrected, false, false, {"beta"}},
        {"oja", "S + beta (k - S v) vᵀ, v of unit length", Reads::Values, corrected_by_values, false, false, {"beta"}},
        {"householder", "as many delta steps per token as `rank`", Reads::Keys, corrected, true, false, {"beta"}},
        {"dplr", "S - rate p pᵀ S + k vᵀ, p of unit length", Reads::Keys, erased, false, false, {"p", "rate"}},
        {"mimo", "as many keys and values per token as `rank`", Reads::Nothing, nullptr, true, false, {}},
        {"momentum",
         "S + M, where M = σ(mu) M + beta k vᵀ",
         Reads::Nothing,
         with_momentum,
         false,
         true,
         {"beta", "mu", "prev_m"}},
    };
    return kChoices;
}

const std::vector<ReadChoice>& read_choices() {
    static const std::vector<ReadChoice> kChoices = {
        {"after", "the state after the token", true},
        {"before", "the state before it", false},
    };
    return kChoices;
}

const std::vector<NormaliseChoice>& normalise_choices() {
    static const std::vector<NormaliseChoice> kChoices = {
        {"none", "outputs as they are", false},
        {"sum", "divided by what queries read of the sum of keys", true},
    };
    return kChoices;
}

const std::vector<DiscretiseChoice>& discretise_choices() {
    static const std::vector<DiscretiseChoice> kChoices = {
        {"euler", "k vᵀ", nullptr, {}},
        {"zero-order-hold", "(1 - decay) k vᵀ", held, {}},
        {"trapezoidal", "mix k vᵀ + (1 - mix) decay k' v'ᵀ, k' and v' of the token before", trapezoid, {"mix"}},
    };
    return kChoices;
}

}  // namespace forge::frontend
