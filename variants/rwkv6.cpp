/// RWKV-6: o_t = scale (S_{t-1} + (u ⊙ k_t) v_tᵀ)ᵀ q_t, then S_t = diag(exp(g_t)) S_{t-1} + k_t v_tᵀ. The read comes
/// before the update, so a token sees itself only through the bonus u. (q is the paper's r, exp(g) its w.) Peng et al.,
/// "Eagle and Finch", 2024, arXiv:2404.05892, section 4.1.2 (Finch).
#include "variants/variants.h"

namespace forge::variants {

LinearAttention rwkv6() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("rwkv6");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV, K}, kLogDecays).head_input("u", F32, {HV, K}).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "g"}, [](Tensor k, Tensor v, Tensor g) {  // [C, K] [C, V] [C, K] -> [K, V]
        Tensor to_end = exp(sum(g, 0) - cumsum(g, 0));
        return matmul_out_fp32(transpose((k * to_end).to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "g"},
            [](Tensor prev, Tensor chunk, Tensor g) { return prev * unsqueeze(exp(sum(g, 0)), 1) + chunk; });
    a.merge({"q", "k", "v", "g", "u", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor u, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor G = cumsum(g, 0);
                Tensor reading = q * exp(G - g);  // without the token's own decay
                Tensor scores = tril(matmul(reading, transpose(k * exp(-G))), -1);
                Tensor within = matmul_out_fp32(scores.to(v.dtype()), v);
                Tensor itself = unsqueeze(sum(q * u * k, 1), 1) * v;
                Tensor carried = matmul_out_fp32(reading.to(q.dtype()), before.to(q.dtype()));
                return (within + itself + carried) * scale;
            });
    a.step({"q", "k", "v", "g", "u", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor u, Tensor s, Tensor scale) -> Results {
               Tensor next = s * unsqueeze(exp(g), 1) + outer(k, v);
               return {{"s", next}, {"o", matmul(q, s + outer(u * k, v)) * scale}};
           });
    return a;
}

}  // namespace forge::variants
