/// Values that are worth more or less: each comes with a precision p ≥ 0, the inverse of its variance. The information
/// about S is kept as in a Kalman filter's information form, its matrix by its diagonal: Λ_t = e^{g_t} Λ_{t-1} + p_t
/// k_t², S_t = e^{g_t} S_{t-1} + p_t k_t v_tᵀ, and what is read is the estimate, o_t = scale S_tᵀ (q_t / (1 + Λ_t)),
/// with a prior of precision 1. Weighted least squares as in Wang et al., "Test-time regression", 2025,
/// arXiv:2501.12352; with decays e^g, least squares that forget. An initial Λ below 0, which is no precision, counts as
/// 0.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention precision_weighted() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("precision_weighted");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("p", F32, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V}).state("l", F32, {K});

    a.chunk({"k", "v", "g", "p"}, [](Tensor k, Tensor v, Tensor g, Tensor p) -> Results {
        Tensor information = cache_result(square(k.to(F32)) * unsqueeze(p, 1), "information");
        Tensor to_end = unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1);
        return {{"s", matmul_out_fp32(transpose((k * unsqueeze(p, 1) * to_end).to(v.dtype())), v)},
                {"l", sum(information * to_end, 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_l", "chunk_l", "g"},
            [](Tensor s, Tensor chunk_s, Tensor l, Tensor chunk_l, Tensor g) -> Results {
                Tensor alpha = exp(sum(g, 0));
                return {{"s", s * alpha + chunk_s}, {"l", l * alpha + chunk_l}};
            });
    a.merge({"q", "k", "v", "g", "p", "information", "prev_s", "prev_l", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor p, Tensor information, Tensor s, Tensor l, Tensor scale) {
                Tensor G = cumsum(g, 0), decay = tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                Tensor precision = matmul(decay, information) + outer(exp(G), l);
                Tensor reading = q.to(F32) / (1.0 + relu(precision));
                Tensor scores = matmul(reading, transpose(k.to(F32))) * decay * unsqueeze(p, 0);
                return (matmul(scores, v.to(F32)) + matmul(reading, s) * unsqueeze(exp(G), 1)) * scale;
            });
    a.step({"q", "k", "v", "g", "p", "prev_s", "prev_l", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor p, Tensor s, Tensor l, Tensor scale) -> Results {
               Tensor next = s * exp(g) + outer(k * p, v), precision = l * exp(g) + square(k) * p;
               return {{"s", next}, {"l", precision}, {"o", matmul(q / (1.0 + relu(precision)), next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
