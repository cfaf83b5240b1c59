/// Linear attention without a feature map: S_t = S_{t-1} + k_t v_tᵀ, o_t = scale S_tᵀ q_t.
/// Katharopoulos et al., "Transformers are RNNs", 2020, arXiv:2006.16236, section 3.4; the normaliser is left out, as
/// is usual since.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention linear_attention() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("linear_attention");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V}).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "k", "v", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor before, Tensor scale) {  // -> [C, V]
                Tensor scores = tril(matmul_out_fp32(q, transpose(k)));
                Tensor within = matmul_out_fp32(scores.to(v.dtype()), v);
                return (within + matmul_out_fp32(q, before.to(q.dtype()))) * scale;
            });
    a.step({"q", "k", "v", "prev_s", "scale"}, [](Tensor q, Tensor k, Tensor v, Tensor s, Tensor scale) -> Results {
        Tensor next = s + outer(k, v);
        return {{"s", next}, {"o", matmul(q, next) * scale}};
    });
    return a;
}

}  // namespace forge::variants
