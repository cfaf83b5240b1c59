/// Hawk's RG-LRU: a_t = exp(-8 softplus(Λ) σ(r_t)), h_t = a_t ⊙ h_{t-1} + sqrt(1 - a_t²) ⊙ (σ(i_t) ⊙ x_t), o_t = h_t.
/// De et al., "Griffin", 2024, arXiv:2402.19427, section 2.4, equations 1 to 4; r and i are the gates before the
/// sigmoid.
#include <limits>

#include "variants/variants.h"

namespace forge::variants {
namespace {

/// log a_t from the recurrence gate.
Tensor log_decay(const Tensor& r, const Tensor& lambda) { return -8.0 * softplus(lambda) * sigmoid(r); }

/// The gated input, scaled such that the state keeps its variance.
Tensor gated(const Tensor& log_a, const Tensor& i, const Tensor& x) {
    return sqrt(1.0 - exp(2.0 * log_a)) * (sigmoid(i) * x);
}

}  // namespace

LinearAttention hawk() {
    constexpr double kNoDecay = -std::numeric_limits<double>::infinity();  // of r: σ(r) = 0, so a = 1 for padding
    auto [T, H, D] = dims("T", "H", "D");
    LinearAttention a("hawk");
    a.input("x", BF16, {T, H, D}).input("r", F32, {T, H, D}, kNoDecay).input("i", F32, {T, H, D});
    a.head_input("lambda", F32, {H, D});
    a.state("h", F32, {D});

    a.chunk({"x", "r", "i", "lambda"}, [](Tensor x, Tensor r, Tensor i, Tensor lambda) {  // [C, D] … [D] -> [D]
        Tensor log_a = cache_result(log_decay(r, lambda), "log_a");
        return select(cache_result(linear_scan(exp(log_a), gated(log_a, i, x)), "within"), 0, -1);
    });
    a.decay({"prev_h", "chunk_state", "log_a"},
            [](Tensor prev, Tensor chunk, Tensor log_a) { return prev * exp(sum(log_a, 0)) + chunk; });
    a.merge({"within", "log_a", "chunk_state"}, [](Tensor within, Tensor log_a, Tensor before) {  // -> [C, D]
        return within + exp(cumsum(log_a, 0)) * before;
    });
    a.step({"x", "r", "i", "lambda", "prev_h"}, [](Tensor x, Tensor r, Tensor i, Tensor lambda, Tensor h) -> Results {
        Tensor log_a = log_decay(r, lambda);
        Tensor next = exp(log_a) * h + gated(log_a, i, x);
        return {{"h", next}, {"o", next}};
    });
    return a;
}

}  // namespace forge::variants
