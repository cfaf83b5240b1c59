/// HGRN-2: S_t = diag(exp(g_t)) S_{t-1} + (1 - exp(g_t)) v_tᵀ, o_t = scale S_tᵀ q_t: gated linear attention whose key
/// is the complement of its forget gate. Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", 2024,
/// arXiv:2404.07904, section 3.2.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention hgrn2() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("hgrn2");
    a.input("q", BF16, {T, H, K}).input("v", BF16, {T, HV, V}).input("g", F32, {T, HV, K}, kLogDecays).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"v", "g"}, [](Tensor v, Tensor g) {  // [C, V] [C, K] -> [K, V]
        Tensor k = cache_result(1.0 - exp(g), "k");
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));
        return matmul_out_fp32(transpose((k * to_end).to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * unsqueeze(exp(sum(g, 0)), 1) + chunk; });
    a.merge({"q", "k", "v", "g", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor G = cumsum(g, 0);
                Tensor scores = tril(matmul(q * exp(G), transpose(k * exp(-G))));
                Tensor within = matmul_out_fp32(scores.to(v.dtype()), v);
                Tensor carried = matmul_out_fp32((q * exp(G)).to(q.dtype()), before.to(q.dtype()));
                return (within + carried) * scale;
            });
    a.step({"q", "v", "g", "prev_s", "scale"}, [](Tensor q, Tensor v, Tensor g, Tensor s, Tensor scale) -> Results {
        Tensor next = s * unsqueeze(exp(g), 1) + outer(1.0 - exp(g), v);
        return {{"s", next}, {"o", matmul(q, next) * scale}};
    });
    return a;
}

}  // namespace forge::variants
