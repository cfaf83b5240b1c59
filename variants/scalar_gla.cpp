/// Scalar gated linear attention, the recurrence of Mamba-2 (SSD): S_t = exp(g_t) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ
/// q_t. Dao and Gu, "Transformers are SSMs", 2024, arXiv:2405.21060, section 6 (chunked form); g_t <= 0 is a natural
/// logarithm.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention scalar_gla() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("scalar_gla");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {  // [C, K] [C, V] [C] -> [K, V]
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));           // decay from each token to the chunk's end
        return matmul_out_fp32(transpose((k * unsqueeze(to_end, 1)).to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * exp(sum(g, 0)) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor G = cumsum(g, 0);
                Tensor scores = matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0));
                Tensor within = matmul_out_fp32(tril(scores).to(v.dtype()), v);
                Tensor carried = matmul_out_fp32(q, before.to(q.dtype())) * unsqueeze(exp(G), 1);
                return (within + carried) * scale;
            });
    a.step({"q", "k", "v", "g", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor scale) -> Results {
               Tensor next = s * exp(g) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
