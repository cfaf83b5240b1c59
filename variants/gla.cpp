/// Gated linear attention: S_t = diag(exp(g_t)) S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t, one log gate per key channel.
/// Yang et al., "Gated Linear Attention Transformers", 2023, arXiv:2312.06635, sections 4.2 and 4.3. The products
/// within a chunk are written with exp(G) and exp(-G), as on paper; the compiler gives them a form that is finite for
/// every gate.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention gla() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("gla");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV, K}, kLogDecays).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {  // [C, K] [C, V] [C, K] -> [K, V]
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));           // decay from each token to the chunk's end
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
    a.step({"q", "k", "v", "g", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor scale) -> Results {
               Tensor next = s * unsqueeze(exp(g), 1) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
