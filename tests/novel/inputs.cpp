// Unusual inputs: shifted ones, several rows per token, and more outputs than one.
#include "tests/novel/programs.h"

namespace forge::novel {

/// Token shift: keys are mixed with the previous token's, k' = k + μ (k_{t-1} - k), then S = S + k' vᵀ.
LinearAttention token_shift() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("token_shift");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V}).head_input("mu", F32, {H, K});
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

}  // namespace forge::novel
