// Unusual inputs: shifted ones, several rows per token, and more outputs than one.
#include "tests/novel/programs.h"

namespace forge::novel {

/// Token shift: keys are mixed with the previous token's, k' = k + μ (k_{t-1} - k), then S = S + k' vᵀ.
LinearAttention token_shift() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("token_shift");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, H, V})
        .head_input("mu", F32, {H, K}, kZeroToOne);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "mu"}, [](Tensor k, Tensor v, Tensor mu) {
        Tensor mixed = cache_result(k + mu * (prev_token(k) - k), "mixed");
        return matmul(transpose(mixed), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "v", "mixed", "chunk_state"}, [](Tensor q, Tensor v, Tensor mixed, Tensor before) {
        Tensor wide = q.to(F32);
        return matmul(tril(matmul(wide, transpose(mixed))), v.to(F32)) + matmul(wide, before);
    });
    a.step({"q", "k", "v", "mu", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor mu, Tensor s) -> Results {
        Tensor next = s + outer(k + mu * (prev_token(k) - k), v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// What a token looks back to, x' = x_{t-1}, of two rows and of numbers: S = S + w₀ w'₁ (k₀ ⊙ k'₁) (v - v')ᵀ. Before
/// the first token w' is 1.
LinearAttention shifted_pairs() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("shifted_pairs");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("w", F32, {2 * T, H}, 1.0);
    a.input("v", BF16, {T, HV, V});
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "w"}, [](Tensor k, Tensor v, Tensor w) {
        Tensor pairs = slice(k, 0, 0, 2).to(F32) * slice(prev_token(k), 0, 1, 2);
        Tensor weights = slice(w, 0, 0, 2) * slice(prev_token(w), 0, 1, 2);
        Tensor keys = cache_result(pairs * unsqueeze(weights, 1), "keys");
        return matmul(transpose(keys), cache_result(v.to(F32) - prev_token(v), "values"));
    });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "keys", "values", "chunk_state"}, [](Tensor q, Tensor keys, Tensor values, Tensor before) {
        Tensor wide = q.to(F32);
        return matmul(tril(matmul(wide, transpose(keys))), values) + matmul(wide, before);
    });
    a.step({"q", "k", "v", "w", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor w, Tensor s) -> Results {
        Tensor key = select(k, 0, 0) * select(prev_token(k), 0, 1) * select(w, 0, 0) * select(prev_token(w), 0, 1);
        Tensor next = s + outer(key, v - prev_token(v));
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// S = exp(g + g_{t-1}) S + k vᵀ: a gate that holds for two tokens.
LinearAttention shifted_gates() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("shifted_gates");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("g", F32, {T, H}, kLogDecays);
    a.input("v", BF16, {T, HV, V});
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {
        Tensor both = cache_result(g + prev_token(g), "both");
        Tensor to_end = exp(sum(both, 0) - cumsum(both, 0));
        return matmul_out_fp32(transpose((k * unsqueeze(to_end, 1)).to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "both"},
            [](Tensor prev, Tensor chunk, Tensor both) { return prev * exp(sum(both, 0)) + chunk; });
    a.merge({"q", "k", "v", "both", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor both, Tensor before) {
        Tensor G = cumsum(both, 0);
        Tensor scores = matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0));
        Tensor carried = matmul_out_fp32(q, before.to(q.dtype())) * unsqueeze(exp(G), 1);
        return matmul_out_fp32(tril(scores).to(v.dtype()), v) + carried;
    });
    a.step({"q", "k", "v", "g", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        Tensor next = s * exp(g + prev_token(g)) + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// Two rows of k per token, used as one: S = S + (k₀ ⊙ k₁) vᵀ; a second output gives the products themselves.
LinearAttention paired_keys() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("paired_keys");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V});
    a.output("o", BF16, {T, H, V}).output("pair", F32, {T, H, K});

    a.chunk({"k", "v"}, [](Tensor k, Tensor v) {
        Tensor pair = cache_result(slice(k, 0, 0, 2).to(F32) * slice(k, 0, 1, 2), "product");
        return matmul(transpose(pair), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "v", "product", "chunk_state"}, [](Tensor q, Tensor v, Tensor product, Tensor before) -> Results {
        Tensor wide = q.to(F32);
        Tensor o = matmul(tril(matmul(wide, transpose(product))), v.to(F32)) + matmul(wide, before);
        return {{"o", o}, {"pair", product}};
    });
    a.step({"q", "k", "v", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor s) -> Results {
        Tensor pair = select(k, 0, 0) * select(k, 0, 1);
        Tensor next = s + outer(pair, v);
        return {{"s", next}, {"o", matmul(q, next)}, {"pair", pair}};
    });
    return a;
}

/// S = exp(g) S + exp(x) k̂ vᵀ with k̂, q̂ of length 1: vectors of tokens from maxima, scans and lengths of rows beside
/// running sums, each of which another device function makes.
LinearAttention weighted_tokens() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("weighted_tokens");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("x", BF16, {T, HV}).input("g", F32, {T, HV});
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "x", "g"}, [](Tensor k, Tensor v, Tensor x, Tensor g) {
        Tensor wide = x.to(F32), most = amax(wide, 0);
        Tensor weights = exp(wide - most) * exp(sum(g, 0) - cumsum(g, 0));
        Tensor keys = cache_result(l2norm(k.to(F32)), "keys");
        return matmul(transpose(keys * unsqueeze(weights, 1)), v.to(F32)) * exp(most);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "keys", "v", "x", "g", "token_mask", "chunk_state"},
            [](Tensor q, Tensor keys, Tensor v, Tensor x, Tensor g, Tensor token_mask, Tensor before) {
                Tensor G = cumsum(g, 0), decay = exp(unsqueeze(G, 1) - unsqueeze(G, 0));
                Tensor from_start = exp(linear_scan(maximum(token_mask, 1.0), g));  // the same sum
                Tensor reading = l2norm(q.to(F32)), wide = x.to(F32);
                Tensor values = v * unsqueeze(where(token_mask.to(DType::Bool), exp(wide), 0.0), 1);
                Tensor within = matmul(tril(matmul(reading, transpose(keys)) * decay), values);
                return within + matmul(reading * unsqueeze(from_start, 1), before);
            });
    a.step({"q", "k", "v", "x", "g", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor x, Tensor g, Tensor s) -> Results {
               Tensor next = s * exp(g) + outer(l2norm(k) * exp(x), v);
               return {{"s", next}, {"o", matmul(l2norm(q), next)}};
           });
    return a;
}

/// Two writes and two reads per token, one after the other: S = exp(g) S before the first, S = S + w k vᵀ with
/// w = rate β and o = Sᵀ q for each. Rows 2t and 2t + 1 of q, k, v, β, the rates and of the output are token t's.
LinearAttention several_rows() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("several_rows");
    a.input("q", BF16, {2 * T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {2 * T, HV, V});
    a.input("beta", BF16, {2 * T, HV}).input("rate", F32, {2 * T, HV}, 1.0).input("g", F32, {T, HV});
    a.state("s", F32, {K, V});
    a.output("o", BF16, {2 * T, HV, V});

    a.chunk({"k", "v", "beta", "rate", "g"}, [](Tensor k, Tensor v, Tensor beta, Tensor rate, Tensor g) {
        Tensor w = cache_result(beta.to(F32) * rate, "w");
        Tensor to_end = repeat_interleave(exp(sum(g, 0) - cumsum(g, 0)), 2, 0);
        return matmul_out_fp32(transpose((k * unsqueeze(w * to_end, 1)).to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "k", "v", "w", "g", "chunk_state"},
            [](Tensor q, Tensor k, Tensor v, Tensor w, Tensor g, Tensor before) -> Results {
                const auto rows = [](const Tensor& x, int dim) { return repeat_interleave(x, 2, dim); };
                Tensor G = cumsum(g, 0);
                Tensor decay = rows(rows(tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0))), 0), 1);
                Tensor scores = tril(matmul_out_fp32(q, transpose(k)) * decay * unsqueeze(w, 0));
                Tensor carried = matmul_out_fp32(q, before.to(q.dtype())) * unsqueeze(rows(exp(G), 0), 1);
                return {{"o", matmul_out_fp32(scores.to(v.dtype()), v) + carried}};
            });
    a.step({"q", "k", "v", "beta", "rate", "g", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor beta, Tensor rate, Tensor g, Tensor s) -> Results {
               Tensor w = beta * rate, before = s * exp(g);
               Tensor scores = tril(matmul(q, transpose(k)) * unsqueeze(w, 0));
               return {{"s", before + matmul(transpose(k * unsqueeze(w, 1)), v)},
                       {"o", matmul(scores, v) + matmul(q, before)}};
           });
    return a;
}

}  // namespace forge::novel
