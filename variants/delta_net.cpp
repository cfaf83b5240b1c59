/// DeltaNet: S_t = (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ, o_t = scale S_tᵀ q_t: a token replaces what the state
/// holds for its key. Yang et al., "Parallelizing Linear Transformers with the Delta Rule", 2024, arXiv:2406.06484,
/// section 3.2: the chunk's updates are U - W S with U = (I + A)⁻¹ β v, W = (I + A)⁻¹ β k, A = tril(β k kᵀ, -1).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention delta_net() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("delta_net");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "beta"}, [](Tensor k, Tensor v, Tensor beta) {  // [C, K] [C, V] [C] -> [K, V]
        Tensor b = unsqueeze(beta.to(F32), 1), wide = cache_result(k.to(F32), "wide");
        Tensor A = tril(matmul_out_fp32(k, transpose(k)), -1) * b;
        Tensor solve = inverse(identity(A, A.size(0)) + A);
        Tensor u = cache_result(matmul(solve, v * b), "u");
        cache_result(matmul(solve, k * b), "w");
        return matmul(transpose(wide), u);
    });
    a.decay({"prev_s", "chunk_state", "wide", "w"}, [](Tensor prev, Tensor chunk, Tensor wide, Tensor w) {
        return prev + chunk - matmul(transpose(wide), matmul(w, prev));
    });
    a.merge({"q", "k", "u", "w", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor u, Tensor w, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor updates = (u - matmul(w, before)).to(q.dtype());
                Tensor scores = tril(matmul_out_fp32(q, transpose(k)));
                Tensor within = matmul_out_fp32(scores.to(q.dtype()), updates);
                return (within + matmul_out_fp32(q, before.to(q.dtype()))) * scale;
            });
    a.step({"q", "k", "v", "beta", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor beta, Tensor s, Tensor scale) -> Results {
               Tensor next = s + outer(k, (v - matmul(k, s)) * beta);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
