#include "tests/novel/recurrences.h"

namespace forge::novel {
namespace {

/// Inputs q, k, v of a head, the state s, and what else a recurrence has.
LinearAttention with_heads(const char* name) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a(name);
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V});
    return a;
}

/// RWKV-7: S = diag(e^g) S - (a ⊙ κ) (κᵀ S) + k vᵀ, read before the decay; o = Sᵀ q.
LinearAttention rwkv7() {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = with_heads("rwkv7");
    a.input("g", F32, {T, H, K}, kLogDecays).input("kappa", BF16, {T, H, K}).input("rate", BF16, {T, H, K}, kZeroToOne);
    a.step({"q", "k", "v", "g", "kappa", "rate", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor kappa, Tensor rate, Tensor s) -> Results {
               Tensor unit = l2norm(kappa);
               Tensor next = unsqueeze(exp(g), 1) * s - outer(rate * unit, matmul(unit, s)) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

/// Longhorn's implicit update: S = (1 - ε k²) ⊙ S + ε k vᵀ with ε = β / (1 + β |k|²).
LinearAttention longhorn() {
    auto [T, H] = dims("T", "H");
    LinearAttention a = with_heads("longhorn");
    a.input("beta", F32, {T, H}, kZeroToOne);
    a.step({"q", "k", "v", "beta", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor beta, Tensor s) -> Results {
        Tensor rate = beta / (1.0 + beta * sum(k * k, 0));
        Tensor next = unsqueeze(maximum(1.0 - rate * k * k, 0.0), 1) * s + outer(rate * k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// Comba: a closed loop that reads with b k before the decay, and a query that is corrected by the key.
LinearAttention comba() {
    auto [T, H] = dims("T", "H");
    LinearAttention a = with_heads("comba");
    a.input("g", F32, {T, H}, kLogDecays).input("beta", BF16, {T, H}, kZeroToOne);
    a.head_input("b", F32, {H}, kZeroToOne).head_input("d", F32, {H}, kZeroToOne);
    a.step({"q", "k", "v", "g", "beta", "b", "d", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor b, Tensor d, Tensor s) -> Results {
               Tensor next = s * exp(g) + outer(k * beta, v - b * matmul(k, s));
               return {{"s", next}, {"o", matmul(q - d * k, next)}};
           });
    return a;
}

/// Mamba's selective scan: every entry of the state decays by its own factor, S = e^(Δ A) ⊙ S + B (Δ x)ᵀ.
LinearAttention selective_scan() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("selective_scan");
    a.input("b", BF16, {T, H, K}).input("c", BF16, {T, H, K}).input("x", BF16, {T, H, V});
    a.input("delta", F32, {T, H, V}).head_input("log_a", F32, {H, K, V});
    a.state("s", F32, {K, V});
    a.step({"b", "c", "x", "delta", "log_a", "prev_s"},
           [](Tensor b, Tensor c, Tensor x, Tensor delta, Tensor log_a, Tensor s) -> Results {
               Tensor pace = softplus(delta);
               Tensor next = exp(-exp(log_a) * unsqueeze(pace, 0)) * s + outer(b, pace * x);
               return {{"s", next}, {"o", matmul(c, next)}};
           });
    return a;
}

/// Diagonal preconditioning: h = γ h + k², S = γ S + k vᵀ, o = Sᵀ (q / (h + λ)).
LinearAttention mesa_diagonal() {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = with_heads("mesa_diagonal");
    a.input("g", F32, {T, H}, kLogDecays).head_input("lambda", F32, {H, K}, Range{1, 2}).state("h", F32, {K});
    a.step({"q", "k", "v", "g", "lambda", "prev_s", "prev_h"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor lambda, Tensor s, Tensor h) -> Results {
               Tensor next = s * exp(g) + outer(k, v), curvature = h * exp(g) + k * k;
               return {{"s", next}, {"h", curvature}, {"o", matmul(q / (abs(curvature) + lambda), next)}};
           });
    return a;
}

/// PaTH's transitions on a linear memory: S = (I - β w wᵀ) S + k vᵀ, with a key w of its own.
LinearAttention householder_paths() {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = with_heads("householder_paths");
    a.input("w", BF16, {T, H, K}).input("beta", BF16, {T, H}, kZeroToOne);
    a.step({"q", "k", "v", "w", "beta", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor w, Tensor beta, Tensor s) -> Results {
               Tensor unit = l2norm(w);
               Tensor next = matmul(identity(unit, unit.size(0)) - outer(beta * unit, unit), s) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

/// Gated slot attention: keys and values in M slots that are forgotten alike, read by a softmax over the slots.
LinearAttention gated_slots() {
    auto [T, H, K, V, M] = dims("T", "H", "K", "V", "M");
    LinearAttention a("gated_slots");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).input("g", F32, {T, H, M});
    a.state("keys", F32, {K, M}).state("values", F32, {M, V});
    a.step({"q", "k", "v", "g", "prev_keys", "prev_values"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor keys, Tensor values) -> Results {
               Tensor alpha = sigmoid(g), next_keys = keys * unsqueeze(alpha, 0) + outer(k, 1.0 - alpha);
               Tensor next_values = values * unsqueeze(alpha, 1) + outer(1.0 - alpha, v);
               Tensor o = matmul(softmax(matmul(q, next_keys), 0), next_values);
               return {{"keys", next_keys}, {"values", next_values}, {"o", o}};
           });
    return a;
}

/// mLSTM with sigmoid gates: C = f C + i k vᵀ, n = f n + i k, o = Cᵀ q / max(|nᵀ q|, 1).
LinearAttention mlstm() {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = with_heads("mlstm");
    a.input("i", F32, {T, H}).input("f", F32, {T, H}).state("n", F32, {K});
    a.step({"q", "k", "v", "i", "f", "prev_s", "prev_n"},
           [](Tensor q, Tensor k, Tensor v, Tensor i, Tensor f, Tensor s, Tensor n) -> Results {
               Tensor keep = sigmoid(f), next = s * keep + outer(k, v) * sigmoid(i), sum_k = n * keep + k * sigmoid(i);
               return {{"s", next}, {"n", sum_k}, {"o", matmul(q, next) / maximum(abs(sum(q * sum_k, 0)), 1.0)}};
           });
    return a;
}

/// RetNet with rotary positions: halves of the channels are turned by n θ, of which a state counts n.
LinearAttention rotary_retention() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("rotary_retention");
    a.input("q", BF16, {T, H, 2 * K}).input("k", BF16, {T, H, 2 * K}).input("v", BF16, {T, H, V});
    a.head_input("gamma_log", F32, {H}, kLogDecays).head_input("theta", F32, {H, K}, kZeroToOne);
    a.state("s", F32, {2 * K, V}).state("n", F32, {});
    a.step({"q", "k", "v", "gamma_log", "theta", "prev_s", "prev_n"},
           [](Tensor q, Tensor k, Tensor v, Tensor gamma_log, Tensor theta, Tensor s, Tensor n) -> Results {
               Tensor c = cos(n * theta), d = sin(n * theta);
               const auto turned = [&](const Tensor& x) {
                   Tensor even = part(x, 0, 0, 2), odd = part(x, 0, 1, 2);
                   return concat({even * c - odd * d, odd * c + even * d}, 0);
               };
               Tensor next = s * exp(gamma_log) + outer(turned(k), v);
               return {{"s", next}, {"n", n + 1.0}, {"o", matmul(turned(q), next)}};
           });
    return a;
}

/// ReBased: features (γ x + β)², with a normaliser.
LinearAttention rebased() {
    auto [H, K] = dims("H", "K");
    LinearAttention a = with_heads("rebased");
    a.head_input("gamma", F32, {H, K}).head_input("beta", F32, {H, K}).state("z", F32, {K});
    a.step({"q", "k", "v", "gamma", "beta", "prev_s", "prev_z"},
           [](Tensor q, Tensor k, Tensor v, Tensor gamma, Tensor beta, Tensor s, Tensor z) -> Results {
               Tensor fq = square(gamma * q + beta), fk = square(gamma * k + beta), next = s + outer(fk, v);
               return {{"s", next}, {"z", z + fk}, {"o", matmul(fq, next) / (abs(matmul(fq, z + fk)) + 1.0)}};
           });
    return a;
}

/// Mamba-3's trapezoidal rule: S = e^g S + (1 - λ) Δ e^g k_{t-1} v_{t-1}ᵀ + λ Δ k vᵀ.
LinearAttention trapezoidal() {
    auto [T, H] = dims("T", "H");
    LinearAttention a = with_heads("trapezoidal");
    a.input("g", F32, {T, H}, kLogDecays).input("mix", F32, {T, H}, kZeroToOne).input("pace", F32, {T, H}, kZeroToOne);
    a.step({"q", "k", "v", "g", "mix", "pace", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor mix, Tensor pace, Tensor s) -> Results {
               Tensor before = outer(prev_token(k), prev_token(v)) * ((1.0 - mix) * pace * exp(g));
               Tensor next = s * exp(g) + before + outer(k, v) * (mix * pace);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

/// minGRU: h = (1 - z) h + z c.
LinearAttention min_gru() {
    auto [T, H, D] = dims("T", "H", "D");
    LinearAttention a("min_gru");
    a.input("c", BF16, {T, H, D}).input("z", F32, {T, H, D}).state("h", F32, {D});
    a.step({"c", "z", "prev_h"}, [](Tensor c, Tensor z, Tensor h) -> Results {
        Tensor next = (1.0 - sigmoid(z)) * h + sigmoid(z) * c;
        return {{"h", next}, {"o", next}};
    });
    return a;
}

/// Titans' linear memory: a gradient step of |Sᵀ k - v|² with momentum, and forgetting:
/// M = η M - θ k (Sᵀ k - v)ᵀ, S = e^g S + M, of which the one reads the other.
LinearAttention momentum_memory() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a = with_heads("momentum_memory");
    a.input("g", F32, {T, H}, kLogDecays).input("eta", F32, {T, H}).input("theta", BF16, {T, H}, kZeroToOne);
    a.state("m", F32, {K, V});
    a.step({"q", "k", "v", "g", "eta", "theta", "prev_s", "prev_m"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor eta, Tensor theta, Tensor s, Tensor m) -> Results {
               Tensor surprise = matmul(k, s) - v, momentum = m * sigmoid(eta) - outer(k, surprise * theta);
               Tensor next = s * exp(g) + momentum;
               return {{"s", next}, {"m", momentum}, {"o", matmul(q, next)}};
           });
    return a;
}

/// Polyak's momentum of plain linear attention, and a memory of what momentum was: S takes M as it was before the
/// token.
LinearAttention heavy_ball() {
    auto [H, K, V] = dims("H", "K", "V");
    LinearAttention a = with_heads("heavy_ball");
    a.head_input("rate", F32, {H}, kZeroToOne).state("m", F32, {K, V}).state("average", F32, {K, V});
    a.step({"q", "k", "v", "rate", "prev_s", "prev_m", "prev_average"},
           [](Tensor q, Tensor k, Tensor v, Tensor rate, Tensor s, Tensor m, Tensor average) -> Results {
               Tensor next_m = m * rate + outer(k, v), next = s + 0.5 * m;
               Tensor next_average = average * 0.9 + next * 0.1;
               return {{"s", next}, {"m", next_m}, {"average", next_average}, {"o", matmul(q, next_average + next_m)}};
           });
    return a;
}

/// Retention whose outputs are brought to a length of √V, weighted and gated, with decays of each token. What lengths
/// are kept from 0 by is large enough for quotients to keep their digits where gates forget everything.
LinearAttention gated_norm() {
    auto [T, H, V] = dims("T", "H", "V");
    LinearAttention a = with_heads("gated_norm");
    a.input("z", BF16, {T, H, V}).input("g", F32, {T, H}, kLogDecays).head_input("w", F32, {H, V});
    a.step({"q", "k", "v", "z", "g", "w", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor z, Tensor g, Tensor w, Tensor s) -> Results {
               Tensor next = s * exp(g) + outer(k, v);
               Tensor read = matmul(q, next), length = sqrt(mean(read * read, 0) + 1e-2);
               return {{"s", next}, {"o", read / length * w * silu(z)}};
           });
    return a;
}

/// xLSTM's matrix memory with its stabiliser: exponential gates beside a running maximum of their logarithms.
LinearAttention stabilised_mlstm() {
    auto [T, H, K] = dims("T", "H", "K");
    LinearAttention a = with_heads("stabilised_mlstm");
    a.input("i", F32, {T, H}, kAnyNumber).input("f", F32, {T, H}, kAnyNumber).state("n", F32, {K}).state("m", F32, {});
    a.step({"q", "k", "v", "i", "f", "prev_s", "prev_n", "prev_m"},
           [](Tensor q, Tensor k, Tensor v, Tensor i, Tensor f, Tensor s, Tensor n, Tensor m) -> Results {
               Tensor log_f = logsigmoid(f), largest = maximum(log_f + m, i);
               Tensor keep = exp(log_f + m - largest), write = exp(i - largest);
               Tensor next = s * keep + outer(k * write, v), norm = n * keep + k * write;
               Tensor o = matmul(q, next) / maximum(abs(sum(q * norm, 0)), exp(-largest));
               return {{"s", next}, {"n", norm}, {"m", largest}, {"o", o}};
           });
    return a;
}

}  // namespace

const std::vector<variants::Entry>& recurrences() {
    static const std::vector<variants::Entry> kAll = {
        {"rwkv7", "S = diag(e^g) S - (a ⊙ κ) κᵀ S + k vᵀ", "Peng et al. 2025, arXiv:2503.14456", rwkv7},
        {"longhorn", "S = (1 - ε k²) ⊙ S + ε k vᵀ", "Liu et al. 2024, arXiv:2407.14207", longhorn},
        {"comba", "S = e^g S + β k (v - b Sᵀ k)ᵀ, o = Sᵀ (q - d k)", "Hu et al. 2025, arXiv:2506.02475", comba},
        {"selective_scan", "S = e^(Δ A) ⊙ S + B (Δ x)ᵀ", "Gu and Dao 2023, arXiv:2312.00752", selective_scan},
        {"mesa_diagonal", "h = γ h + k², o = Sᵀ (q / (h + λ))", "von Oswald et al. 2025, arXiv:2506.05233",
         mesa_diagonal},
        {"householder_paths", "S = (I - β w wᵀ) S + k vᵀ", "Yang et al. 2025, arXiv:2505.16381", householder_paths},
        {"gated_slots", "o = Ṽᵀ softmax(K̃ᵀ q)", "Zhang et al. 2024, arXiv:2409.07146", gated_slots},
        {"mlstm", "o = Cᵀ q / max(|nᵀ q|, 1)", "Beck et al. 2024, arXiv:2405.04517", mlstm},
        {"stabilised_mlstm", "m' = max(log f + m, i), o = Cᵀ q / max(|nᵀ q|, e^-m')",
         "Beck et al. 2024, arXiv:2405.04517", stabilised_mlstm},
        {"rotary_retention", "S = γ S + k' vᵀ, k' turned by n θ", "Sun et al. 2023, arXiv:2307.08621",
         rotary_retention},
        {"rebased", "o = Sᵀ φ(q) / zᵀ φ(q), φ(x) = (γ x + β)²", "Aksenov et al. 2024, arXiv:2402.10644", rebased},
        {"trapezoidal", "S = α S + β k' v'ᵀ + γ k vᵀ", "Lahoti et al. 2026, Mamba-3, arXiv:2603.15569", trapezoidal},
        {"momentum_memory", "M = η M - θ k (Sᵀ k - v)ᵀ, S = e^g S + M", "Behrouz et al. 2024, arXiv:2501.00663",
         momentum_memory},
        {"heavy_ball", "M = μ M + k vᵀ, S = S + M / 2, A = 0.9 A + 0.1 S",
         "Polyak 1964; Nguyen et al. 2022, "
         "arXiv:2208.00579",
         heavy_ball},
        {"gated_norm", "S = e^g S + k vᵀ, o = w ⊙ Sᵀ q / |Sᵀ q| ⊙ silu(z)", "Sun et al. 2023, arXiv:2307.08621",
         gated_norm},
        {"min_gru", "h = (1 - z) h + z c", "Feng et al. 2024, arXiv:2410.01201", min_gru},
    };
    return kAll;
}

}  // namespace forge::novel
