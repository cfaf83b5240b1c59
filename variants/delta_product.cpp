/// Gated DeltaProduct with two Householder steps per token: S = exp(g_t) S_{t-1}, then twice S += β k (v - Sᵀ k)ᵀ with
/// the token's own k, v, β rows; o_t = scale S_tᵀ q_t. Siems et al., "DeltaProduct", 2025, arXiv:2502.10297, section 3.
/// Rows 2t and 2t+1 of k, v, β belong to token t.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention delta_product() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("delta_product");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {2 * T, H, K}).input("v", BF16, {2 * T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("beta", BF16, {2 * T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g", "beta"}, [](Tensor k, Tensor v, Tensor g,
                                        Tensor beta) {  // [2C, K] [2C, V] [C] [2C] -> [K, V]
        const auto rows = [](const Tensor& x, int dim) { return repeat_interleave(x, 2, dim); };  // from tokens to rows
        Tensor G = cumsum(g, 0), b = unsqueeze(beta.to(F32), 1);
        Tensor decay = cache_result(rows(tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0))), 1), "decay");  // [C, 2C]
        Tensor A = tril(matmul_out_fp32(k, transpose(k)) * rows(decay, 0), -1) * b;
        Tensor solve = inverse(identity(A, A.size(0)) + A);
        Tensor u = cache_result(matmul(solve, v * b), "u");
        cache_result(matmul(solve, k * b * unsqueeze(rows(exp(G), 0), 1)), "w");
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));
        Tensor k_end = cache_result(k * unsqueeze(rows(to_end, 0), 1), "k_end");
        return matmul(transpose(k_end), u);
    });
    a.decay({"prev_s", "chunk_state", "g", "k_end", "w"},
            [](Tensor prev, Tensor chunk, Tensor g, Tensor k_end, Tensor w) {
                return prev * exp(sum(g, 0)) + chunk - matmul(transpose(k_end), matmul(w, prev));
            });
    a.merge(
        {"q", "k", "g", "decay", "u", "w", "chunk_state", "scale"},
        [](Tensor q, Tensor k, Tensor g, Tensor decay, Tensor u, Tensor w, Tensor before, Tensor scale) {  // -> [C, V]
            Tensor updates = (u - matmul(w, before)).to(q.dtype());
            Tensor scores = matmul_out_fp32(q, transpose(k)) * decay;  // decay is 0 for later tokens
            Tensor within = matmul_out_fp32(scores.to(q.dtype()), updates);
            Tensor carried = matmul_out_fp32(q, before.to(q.dtype())) * unsqueeze(exp(cumsum(g, 0)), 1);
            return (within + carried) * scale;
        });
    a.step({"q", "k", "v", "g", "beta", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor s, Tensor scale) -> Results {
               Tensor next = s * exp(g);
               for (const std::int64_t row : {0, 1}) {
                   Tensor key = select(k, 0, row);
                   next = next + outer(key, (select(v, 0, row) - matmul(key, next)) * select(beta, 0, row));
               }
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
