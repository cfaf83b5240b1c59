#include "tests/novel/novel.h"

#include "tests/novel/programs.h"

namespace forge::novel {

const std::vector<variants::Entry>& all() {
    static const std::vector<variants::Entry> kAll = {
        {"two_states", "S = S + k vᵀ, m = e^g m + v, o = Sᵀ q + m", "states of different rank", two_states},
        {"normalised", "o = Sᵀ q / zᵀ q", "a normaliser; padding needs token_mask", normalised},
        {"leaky_averages", "h = a h + x', w = w + e^x, o = h / (1 + w)", "vector states, two outputs, prev_token",
         leaky_averages},
        {"running_maximum", "m = max(m, x)", "not affine, exact in chunks", running_maximum},
        {"squashed", "S = tanh(S) + Σ k vᵀ per chunk", "not affine, no step", squashed},
        {"value_decay", "S = S diag(e^g) + k vᵀ", "decay along V", value_decay},
        {"two_sided", "S = diag(e^gk) S diag(e^gv) + k vᵀ", "decay along K and V", two_sided},
        {"elementwise_decay", "S = e^g ⊙ S + k vᵀ, g [K, V]", "tensors of rank 3", elementwise_decay},
        {"linear_gate", "S = α S + k vᵀ", "a gate that is not a logarithm, pad 1", linear_gate},
        {"last_rows", "S = e^g S + k₀ v₀ᵀ + k₁ v₁ᵀ", "parts of decay masks", last_rows},
        {"closed_loop", "S = e^g S + β k (v - Sᵀ p)ᵀ", "reads before the decay, with p ≠ k", closed_loop},
        {"token_shift", "k' = k + μ (k_{t-1} - k)", "prev_token", token_shift},
        {"shifted_pairs", "S = S + w₀ w'₁ (k₀ ⊙ k'₁) (v - v')ᵀ", "prev_token of several inputs, rows and head counts",
         shifted_pairs},
        {"shifted_gates", "S = e^(g + g_{t-1}) S + k vᵀ", "prev_token of a number", shifted_gates},
        {"paired_keys", "S = S + (k₀ ⊙ k₁) vᵀ", "two rows per token, two outputs", paired_keys},
        {"weighted_tokens", "S = e^g S + e^x k̂ vᵀ", "vectors of maxima, scans, sums and lengths", weighted_tokens},
        {"several_rows", "S = e^g S, then twice S = S + w k vᵀ, o = Sᵀ q", "two rows per token of everything",
         several_rows},
        {"rotary", "S = S + k' vᵀ, k' turned by its place", "a place that a state of rank 0 counts, halves", rotary},
        {"turned_pairs", "S = S + k' vᵀ, k' in pairs", "channels by turns", turned_pairs},
        {"two_readings", "S = α S + k vᵀ, o and o - mean(o)", "two rows of output per token, states that are replaced",
         two_readings},
    };
    return kAll;
}

}  // namespace forge::novel
