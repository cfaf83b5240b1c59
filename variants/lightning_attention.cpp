/// Lightning Attention: S_t = e^(-slope) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t, with one positive slope per head.
/// Qin et al., "Lightning Attention-2", 2024, arXiv:2401.04658, section 3; slopes as ALiBi's, 8h/H (1 - layer/layers).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention lightning_attention() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("lightning_attention");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.head_input("slope", F32, {HV}, Range{0, kAnyNumber.high}).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "slope", "token_mask"}, [](Tensor k, Tensor v, Tensor slope, Tensor token_mask) {
        Tensor g = cache_result(-slope * token_mask, "g");  // [C]; padding does not decay
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));
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
    a.step({"q", "k", "v", "slope", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor slope, Tensor s, Tensor scale) -> Results {
               Tensor next = s * exp(-slope) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
