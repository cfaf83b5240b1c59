// Unusual states: several of them, of several shapes, and updates that are not affine.
#include "tests/novel/programs.h"

namespace forge::novel {

/// Linear attention plus a decaying sum of the values: S = S + k vᵀ, m = exp(g) m + v, o = Sᵀ q + m.
LinearAttention two_states() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("two_states");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, HV, V})
        .input("g", F32, {T, HV}, kLogDecays);
    a.state("s", F32, {K, V}).state("m", F32, {V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) -> Results {
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));
        return {{"s", matmul_out_fp32(transpose(k), v)}, {"m", sum(v * unsqueeze(to_end, 1), 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_m", "chunk_m", "g"},
            [](Tensor s, Tensor chunk_s, Tensor m, Tensor chunk_m, Tensor g) -> Results {
                return {{"s", s + chunk_s}, {"m", m * exp(sum(g, 0)) + chunk_m}};
            });
    a.merge({"q", "k", "v", "g", "prev_s", "prev_m"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor m) {
        Tensor G = cumsum(g, 0);
        Tensor weights = tril(matmul_out_fp32(q, transpose(k))) + tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
        return matmul(weights, v.to(F32)) + matmul(q.to(F32), s) + outer(exp(G), m);
    });
    a.step({"q", "k", "v", "g", "prev_s", "prev_m"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor m) -> Results {
               Tensor next_s = s + outer(k, v), next_m = m * exp(g) + v;
               return {{"s", next_s}, {"m", next_m}, {"o", matmul(q, next_s) + next_m}};
           });
    return a;
}

/// Normalised attention: S = exp(g) S + k vᵀ, z = exp(g) z + k, o = Sᵀ q / zᵀ q, with positive features exp(q), exp(k).
LinearAttention normalised() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("normalised");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, HV, V})
        .input("g", F32, {T, HV}, kLogDecays);
    a.state("s", F32, {K, V}).state("z", F32, {K});

    a.chunk({"k", "v", "g", "token_mask"}, [](Tensor k, Tensor v, Tensor g, Tensor token_mask) -> Results {
        Tensor features = cache_result(exp(k.to(F32)) * unsqueeze(token_mask, 1), "features");  // exp(0) is not 0
        Tensor decayed = features * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1);
        return {{"s", matmul(transpose(decayed), v.to(F32))}, {"z", sum(decayed, 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_z", "chunk_z", "g"},
            [](Tensor s, Tensor chunk_s, Tensor z, Tensor chunk_z, Tensor g) -> Results {
                Tensor alpha = exp(sum(g, 0));
                return {{"s", s * alpha + chunk_s}, {"z", z * alpha + chunk_z}};
            });
    a.merge({"q", "v", "g", "features", "prev_s", "prev_z"},
            [](Tensor q, Tensor v, Tensor g, Tensor features, Tensor s, Tensor z) {
                Tensor G = cumsum(g, 0), reading = exp(q.to(F32)), from_start = exp(G);
                Tensor scores = tril(matmul(reading, transpose(features)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                Tensor numerator = matmul(scores, v.to(F32)) + matmul(reading, s) * unsqueeze(from_start, 1);
                Tensor denominator = sum(scores, 1) + matmul(reading, z) * from_start;
                return numerator / unsqueeze(denominator, 1);
            });
    a.step({"q", "k", "v", "g", "prev_s", "prev_z"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor z) -> Results {
               Tensor next_s = s * exp(g) + outer(exp(k), v), next_z = z * exp(g) + exp(k);
               return {{"s", next_s}, {"z", next_z}, {"o", matmul(exp(q), next_s) / sum(exp(q) * next_z, 0)}};
           });
    return a;
}

/// Two vector states and no matrix: h = a h + x', w = w + exp(x), o = h / (1 + w). One gate per token at a rate per
/// channel, log a = g σ(λ); inputs mixed with the token before, x' = x + u (x_{t-1} - x), which are a second output.
LinearAttention leaky_averages() {
    auto [T, H, D] = dims("T", "H", "D");
    LinearAttention a("leaky_averages");
    a.input("x", BF16, {T, H, D})
        .input("g", F32, {T, H}, kLogDecays)
        .head_input("lambda", F32, {H, D})
        .head_input("u", F32, {H, D});
    a.state("h", F32, {D}).state("w", F32, {D});
    a.output("o", BF16, {T, H, D}).output("mixed", F32, {T, H, D});

    a.chunk({"x", "g", "lambda", "u", "token_mask"},
            [](Tensor x, Tensor g, Tensor lambda, Tensor u, Tensor token_mask) -> Results {
                Tensor valid = unsqueeze(token_mask, 1), wide = x.to(F32);
                Tensor mixed = cache_result((wide + u * (prev_token(x).to(F32) - wide)) * valid, "inputs");
                Tensor log_a = cache_result(unsqueeze(g, 1) * sigmoid(lambda), "log_a");
                Tensor weight = cache_result(exp(wide) * valid, "weight");
                return {{"h", select(cache_result(linear_scan(exp(log_a), mixed), "within"), 0, -1)},
                        {"w", sum(weight, 0)}};
            });
    a.decay({"prev_h", "chunk_h", "prev_w", "chunk_w", "log_a"},
            [](Tensor h, Tensor chunk_h, Tensor w, Tensor chunk_w, Tensor log_a) -> Results {
                return {{"h", h * exp(sum(log_a, 0)) + chunk_h}, {"w", w + chunk_w}};
            });
    a.merge({"within", "log_a", "weight", "inputs", "prev_h", "prev_w"},
            [](Tensor within, Tensor log_a, Tensor weight, Tensor inputs, Tensor h, Tensor w) -> Results {
                return {{"o", (within + exp(cumsum(log_a, 0)) * h) / (1.0 + w + cumsum(weight, 0))}, {"mixed", inputs}};
            });
    a.step({"x", "g", "lambda", "u", "prev_h", "prev_w"},
           [](Tensor x, Tensor g, Tensor lambda, Tensor u, Tensor h, Tensor w) -> Results {
               Tensor mixed = x + u * (prev_token(x) - x);
               Tensor next_h = h * exp(g * sigmoid(lambda)) + mixed, next_w = w + exp(x);
               return {{"h", next_h}, {"w", next_w}, {"o", next_h / (1.0 + next_w)}, {"mixed", mixed}};
           });
    return a;
}

/// Not affine, yet exact in chunks: m = max(m, x) beside S = S + k vᵀ, o = exp(x - m) Sᵀ q.
LinearAttention running_maximum() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    constexpr double kLowest = -1e30;
    LinearAttention a("running_maximum");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, H, V})
        .input("x", F32, {T, H}, kLowest, kAnyNumber);
    a.state("s", F32, {K, V}).state("m", F32, {1});

    a.chunk({"k", "v", "x"}, [](Tensor k, Tensor v, Tensor x) -> Results {
        return {{"s", matmul_out_fp32(transpose(k), v)}, {"m", unsqueeze(amax(x, 0), 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_m", "chunk_m"},
            [](Tensor s, Tensor chunk_s, Tensor m, Tensor chunk_m) -> Results {
                return {{"s", s + chunk_s}, {"m", maximum(m, chunk_m)}};
            });
    a.merge({"q", "k", "v", "x", "token_mask", "prev_s", "prev_m"},
            [](Tensor q, Tensor k, Tensor v, Tensor x, Tensor token_mask, Tensor s, Tensor m) {
                Tensor position = cumsum(token_mask, 0);
                Tensor seen = where(le(unsqueeze(position, 0), unsqueeze(position, 1)), unsqueeze(x, 0), kLowest);
                Tensor weight = exp(x - maximum(amax(seen, 1), m));
                Tensor within = matmul(tril(matmul_out_fp32(q, transpose(k))), v.to(F32));
                return (within + matmul(q.to(F32), s)) * unsqueeze(weight, 1);
            });
    a.step({"q", "k", "v", "x", "prev_s", "prev_m"},
           [](Tensor q, Tensor k, Tensor v, Tensor x, Tensor s, Tensor m) -> Results {
               Tensor next_s = s + outer(k, v), next_m = maximum(m, x);
               return {{"s", next_s}, {"m", next_m}, {"o", matmul(q, next_s) * exp(x - next_m)}};
           });
    return a;
}

/// Not affine, and defined per chunk: S = tanh(S) + Σ k vᵀ at the end of every 64 tokens. No step.
LinearAttention squashed() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("squashed");
    a.fixed_chunk(64);
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V});

    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return tanh(prev) + chunk; });
    a.merge({"q", "k", "v", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor before) {
        return matmul(tril(matmul_out_fp32(q, transpose(k))), v.to(F32)) + matmul(q.to(F32), before);
    });
    return a;
}

}  // namespace forge::novel
