/// Gated DeltaNet: S_t = exp(g_t) (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ, o_t = scale S_tᵀ q_t.
/// Yang et al., "Gated Delta Networks", 2024, arXiv:2412.06464, sections 3.1 (equation 10) and 3.3: DeltaNet's chunk
/// form, with every product of tokens i > j decayed by exp(G_i - G_j).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention gated_delta_net() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("gated_delta_net");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g", "beta"}, [](Tensor k, Tensor v, Tensor g, Tensor beta) {  // [C, K] [C, V] [C] [C] -> [K, V]
        Tensor G = cumsum(g, 0), b = unsqueeze(beta.to(F32), 1);
        Tensor A = tril(matmul_out_fp32(k, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)), -1) * b;
        Tensor solve = inverse(identity(A, A.size(0)) + A);
        Tensor u = cache_result(matmul(solve, v * b), "u");
        cache_result(matmul(solve, k * b * unsqueeze(exp(G), 1)), "w");
        Tensor k_end = cache_result(k * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1), "k_end");
        return matmul(transpose(k_end), u);
    });
    a.decay({"prev_s", "chunk_state", "g", "k_end", "w"},
            [](Tensor prev, Tensor chunk, Tensor g, Tensor k_end, Tensor w) {
                return prev * exp(sum(g, 0)) + chunk - matmul(transpose(k_end), matmul(w, prev));
            });
    a.merge({"q", "k", "g", "u", "w", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor g, Tensor u, Tensor w, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor G = cumsum(g, 0);
                Tensor updates = (u - matmul(w, before)).to(q.dtype());
                Tensor scores = matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0));
                Tensor within = matmul_out_fp32(tril(scores).to(q.dtype()), updates);
                Tensor carried = matmul_out_fp32(q, before.to(q.dtype())) * unsqueeze(exp(G), 1);
                return (within + carried) * scale;
            });
    a.step({"q", "k", "v", "g", "beta", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor s, Tensor scale) -> Results {
               Tensor decayed = s * exp(g);
               Tensor next = decayed + outer(k, (v - matmul(k, decayed)) * beta);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
