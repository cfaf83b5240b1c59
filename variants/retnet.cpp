/// RetNet's retention: S_t = γ S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t, with one constant γ per head; `gamma_log` = ln
/// γ. Sun et al., "Retentive Network", 2023, arXiv:2307.08621, section 2.1, equations 5 to 7; γ = 1 - 2^(-5-h) in
/// equation 8.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention retnet() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("retnet");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.head_input("gamma_log", F32, {HV}, kLogDecays).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "gamma_log", "token_mask"}, [](Tensor k, Tensor v, Tensor gamma_log, Tensor token_mask) {
        Tensor g = cache_result(gamma_log * token_mask, "g");  // [C]; padding does not decay
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
    a.step({"q", "k", "v", "gamma_log", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor gamma_log, Tensor s, Tensor scale) -> Results {
               Tensor next = s * exp(gamma_log) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
