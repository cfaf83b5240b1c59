/// Kimi Delta Attention: S = diag(exp(g_t)) S_{t-1}, S_t = S + β_t k_t (v_t - Sᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t: the gated
/// delta rule with one log gate per key channel. Kimi Team, "Kimi Linear", 2025, arXiv:2510.26692, section 3 (equation
/// 1 and the chunk form of 3.1).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention kda() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("kda");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV, K}, kLogDecays).input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g", "beta"},
            [](Tensor k, Tensor v, Tensor g, Tensor beta) {  // [C, K] [C, V] [C, K] [C] -> [K, V]
                Tensor G = cumsum(g, 0), b = unsqueeze(beta.to(F32), 1);
                Tensor A = tril(matmul(k * exp(G), transpose(k * exp(-G))), -1) * b;
                Tensor solve = inverse(identity(A, A.size(0)) + A);
                Tensor u = cache_result(matmul(solve, v * b), "u");
                cache_result(matmul(solve, k * exp(G) * b), "w");
                Tensor k_end = cache_result(k * exp(sum(g, 0) - cumsum(g, 0)), "k_end");
                return matmul(transpose(k_end), u);
            });
    a.decay({"prev_s", "chunk_state", "g", "k_end", "w"},
            [](Tensor prev, Tensor chunk, Tensor g, Tensor k_end, Tensor w) {
                return prev * unsqueeze(exp(sum(g, 0)), 1) + chunk - matmul(transpose(k_end), matmul(w, prev));
            });
    a.merge({"q", "k", "g", "u", "w", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor g, Tensor u, Tensor w, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor G = cumsum(g, 0);
                Tensor updates = (u - matmul(w, before)).to(q.dtype());
                Tensor scores = tril(matmul(q * exp(G), transpose(k * exp(-G))));
                Tensor within = matmul_out_fp32(scores.to(q.dtype()), updates);
                Tensor carried = matmul_out_fp32((q * exp(G)).to(q.dtype()), before.to(q.dtype()));
                return (within + carried) * scale;
            });
    a.step({"q", "k", "v", "g", "beta", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor s, Tensor scale) -> Results {
               Tensor decayed = s * unsqueeze(exp(g), 1);
               Tensor next = decayed + outer(k, (v - matmul(k, decayed)) * beta);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
