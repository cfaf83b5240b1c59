// Unusual decays: of the values' axis, of both axes, of every element, not in log space, and a closed loop with p ≠ k.
#include "tests/novel/programs.h"

namespace forge::novel {

/// S = S diag(exp(g)) + k vᵀ: one gate per value channel. The values decay after the scores are made.
LinearAttention value_decay() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("value_decay");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, HV, V})
        .input("g", F32, {T, HV, V}, kLogDecays);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {
        return matmul(transpose(k.to(F32)), v * exp(sum(g, 0) - cumsum(g, 0)));
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * unsqueeze(exp(sum(g, 0)), 0) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before) {
        Tensor G = cumsum(g, 0);
        Tensor within = matmul(tril(matmul_out_fp32(q, transpose(k))), v * exp(-G));
        return (within + matmul(q.to(F32), before)) * exp(G);
    });
    a.step({"q", "k", "v", "g", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        Tensor next = s * unsqueeze(exp(g), 0) + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// S = diag(exp(gk)) S diag(exp(gv)) + k vᵀ.
LinearAttention two_sided() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("two_sided");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("gk", F32, {T, H, K}, kLogDecays).input("gv", F32, {T, H, V}, kLogDecays);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "gk", "gv"}, [](Tensor k, Tensor v, Tensor gk, Tensor gv) {
        return matmul(transpose(k * exp(sum(gk, 0) - cumsum(gk, 0))), v * exp(sum(gv, 0) - cumsum(gv, 0)));
    });
    a.decay({"prev_s", "chunk_state", "gk", "gv"}, [](Tensor prev, Tensor chunk, Tensor gk, Tensor gv) {
        return unsqueeze(exp(sum(gk, 0)), 1) * prev * unsqueeze(exp(sum(gv, 0)), 0) + chunk;
    });
    a.merge({"q", "k", "v", "gk", "gv", "chunk_state"},
            [](Tensor q, Tensor k, Tensor v, Tensor gk, Tensor gv, Tensor before) {
                Tensor GK = cumsum(gk, 0), GV = cumsum(gv, 0);
                Tensor scores = tril(matmul(q * exp(GK), transpose(k * exp(-GK))));
                return (matmul(scores, v * exp(-GV)) + matmul(q * exp(GK), before)) * exp(GV);
            });
    a.step({"q", "k", "v", "gk", "gv", "prev_s"},
           [](Tensor q, Tensor k, Tensor v, Tensor gk, Tensor gv, Tensor s) -> Results {
               Tensor next = unsqueeze(exp(gk), 1) * s * unsqueeze(exp(gv), 0) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

/// S = exp(g) ⊙ S + k vᵀ with a gate for every element of the state; tensors of rank 3 all along.
LinearAttention elementwise_decay() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("elementwise_decay");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, H, V})
        .input("g", F32, {T, H, K, V}, kLogDecays);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {  // [C, K] [C, V] [C, K, V] -> [K, V]
        Tensor updates = unsqueeze(k, 2).to(F32) * unsqueeze(v, 1);
        return select(cache_result(linear_scan(exp(g), updates), "within"), 0, -1);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "g", "within", "chunk_state"}, [](Tensor q, Tensor g, Tensor within, Tensor before) {
        return sum(unsqueeze(q, 2) * (within + exp(cumsum(g, 0)) * before), 1);
    });
    a.step({"q", "k", "v", "g", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        Tensor next = s * exp(g) + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// S = α S + k vᵀ with α in [0, 1] itself as the input; padding must be 1.
LinearAttention linear_gate() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("linear_gate");
    a.input("q", BF16, {T, H, K})
        .input("k", BF16, {T, H, K})
        .input("v", BF16, {T, H, V})
        .input("alpha", F32, {T, H}, 1.0, kZeroToOne);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "alpha"}, [](Tensor k, Tensor v, Tensor alpha) {
        Tensor g = cache_result(log(alpha), "g");
        return matmul(transpose(k * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1)), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before) {
        Tensor G = cumsum(g, 0);
        Tensor scores = tril(matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
        return matmul(scores, v.to(F32)) + matmul(q.to(F32), before) * unsqueeze(exp(G), 1);
    });
    a.step({"q", "k", "v", "alpha", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor s) -> Results {
        Tensor next = s * alpha + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// S = exp(g) S + k₀ v₀ᵀ + k₁ v₁ᵀ, two rows of keys and values per token, whose decays to the chunk's end are the last
/// row of the decays between all rows: a part of a decay mask, as it is and repeated.
LinearAttention last_rows() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("last_rows");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {2 * T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays);
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {
        Tensor G = cumsum(g, 0), decays = tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
        Tensor rows = cache_result(repeat_interleave(decays, 2, 1), "rows");
        Tensor first = cache_result(select(decays, 1, 0), "first");
        return matmul(transpose(k * unsqueeze(select(rows, 0, -1), 1)), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "k", "v", "g", "rows", "first", "chunk_state"},
            [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor rows, Tensor first, Tensor before) {
                Tensor scores = matmul_out_fp32(q, transpose(k)) * rows;
                Tensor passed = first * exp(select(g, 0, 0));  // from the chunk's beginning
                return matmul(scores, v.to(F32)) + matmul(q.to(F32), before) * unsqueeze(passed, 1);
            });
    a.step({"q", "k", "v", "g", "prev_s"}, [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s) -> Results {
        const auto row = [](const Tensor& x, int i) { return select(x, 0, i); };
        Tensor next = s * exp(g) + outer(row(k, 0), row(v, 0)) + outer(row(k, 1), row(v, 1));
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// Comba's closed loop (arXiv:2506.02475): u = β (v - S_{t-1}ᵀ p) reads with p, before the decay; S = exp(g) S + k uᵀ.
LinearAttention closed_loop() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("closed_loop");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("p", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("beta", BF16, {T, HV}, kZeroToOne);
    a.state("s", F32, {K, V});

    a.chunk({"k", "p", "v", "g", "beta"}, [](Tensor k, Tensor p, Tensor v, Tensor g, Tensor beta) {
        Tensor G = cumsum(g, 0), before = G - g, b = unsqueeze(beta.to(F32), 1);
        Tensor A = tril(matmul_out_fp32(p, transpose(k)) * exp(unsqueeze(before, 1) - unsqueeze(G, 0)), -1) * b;
        Tensor solve = inverse(identity(A, A.size(0)) + A);
        Tensor u = cache_result(matmul(solve, v * b), "u");
        cache_result(matmul(solve, p * b * unsqueeze(exp(before), 1)), "w");
        Tensor k_end = cache_result(k * unsqueeze(exp(sum(g, 0) - G), 1), "k_end");
        return matmul(transpose(k_end), u);
    });
    a.decay({"prev_s", "chunk_state", "g", "k_end", "w"},
            [](Tensor prev, Tensor chunk, Tensor g, Tensor k_end, Tensor w) {
                return prev * exp(sum(g, 0)) + chunk - matmul(transpose(k_end), matmul(w, prev));
            });
    a.merge({"q", "k", "g", "u", "w", "chunk_state"},
            [](Tensor q, Tensor k, Tensor g, Tensor u, Tensor w, Tensor before) {
                Tensor G = cumsum(g, 0);
                Tensor scores = tril(matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                return matmul(scores, u - matmul(w, before)) + matmul(q.to(F32), before) * unsqueeze(exp(G), 1);
            });
    a.step({"q", "k", "p", "v", "g", "beta", "prev_s"},
           [](Tensor q, Tensor k, Tensor p, Tensor v, Tensor g, Tensor beta, Tensor s) -> Results {
               Tensor next = s * exp(g) + outer(k, (v - matmul(p, s)) * beta);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a;
}

}  // namespace forge::novel
