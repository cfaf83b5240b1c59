/// Temporal differences: S predicts from a key what is still to come, the values summed with a discount γ per head.
/// With k' = k_{t-1}, the key before, S_t = S_{t-1} + β_t k' (v_t + γ S_{t-1}ᵀ k_t - S_{t-1}ᵀ k')ᵀ, o_t = scale S_tᵀ
/// q_t; keys have unit length. TD(0) of Sutton, "Learning to Predict by the Methods of Temporal Differences", 1988; in
/// attention: Wang et al., "Transformers Learn Temporal Difference Methods for In-Context Reinforcement Learning",
/// 2024, arXiv:2405.13861. The chunk form is the delta rule's, with k' written and k' - γ k read.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention temporal_difference() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("temporal_difference");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("beta", BF16, {T, HV}, kZeroToOne).head_input("gamma", F32, {HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});

    a.chunk({"k", "v", "beta", "gamma"}, [](Tensor k, Tensor v, Tensor beta, Tensor gamma) {
        Tensor b = unsqueeze(beta.to(F32), 1);
        Tensor written = cache_result(l2norm(prev_token(k).to(F32)), "written");
        Tensor read = written - gamma * l2norm(k.to(F32));
        Tensor A = tril(matmul(read, transpose(written)), -1) * b;
        Tensor solve = inverse(identity(A, A.size(0)) + A);
        Tensor u = cache_result(matmul(solve, v * b), "u");
        cache_result(matmul(solve, read * b), "w");
        return matmul(transpose(written), u);
    });
    a.decay({"prev_s", "chunk_state", "written", "w"}, [](Tensor prev, Tensor chunk, Tensor written, Tensor w) {
        return prev + chunk - matmul(transpose(written), matmul(w, prev));
    });
    a.merge({"q", "written", "u", "w", "chunk_state", "scale"},
            [](Tensor q, Tensor written, Tensor u, Tensor w, Tensor before, Tensor scale) {
                Tensor wide = q.to(F32), scores = tril(matmul(wide, transpose(written)));
                return (matmul(scores, u - matmul(w, before)) + matmul(wide, before)) * scale;
            });
    a.step({"q", "k", "v", "beta", "gamma", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor beta, Tensor gamma, Tensor s, Tensor scale) -> Results {
               Tensor before = l2norm(prev_token(k)), key = l2norm(k);
               Tensor error = v + gamma * matmul(key, s) - matmul(before, s);
               Tensor next = s + outer(before, error * beta);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
