/// The delta rule with a diagonal preconditioner: z_t = e^{g_t} z_{t-1} + k_t², w_t = k_t / (1 + z_t), S = e^{g_t}
/// S_{t-1}, S_t = S + β_t w_t (v_t - Sᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t. The objective is the delta rule's, β/2 |v - Sᵀ
/// k|²; the step is divided, channel by channel, by the second moment of the keys so far plus 1: Duchi et al.,
/// "Adaptive Subgradient Methods", JMLR 2011, section 1.1 (without the square root, as for a quadratic objective),
/// within the frame of Wang et al., "Test-time regression", 2025, arXiv:2501.12352. What is written, w, is not what
/// reads, k; and it needs z before the chunk, so that the solve is on the path from state to state. An initial z below
/// 0, which is no moment, counts as 0.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention preconditioned_delta() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    const Dim keys = K, values = V;
    LinearAttention a("preconditioned_delta");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V}).state("z", F32, {K});

    a.chunk({"k", "g"}, [keys, values](Tensor k, Tensor g) -> Results {
        Tensor G = cumsum(g, 0);
        Tensor decay = cache_result(tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0))), "decay");  // [C, C]
        Tensor squares = cache_result(square(k.to(F32)), "squares");
        return {{"s", full(squares, {keys, values}, 0)}, {"z", sum(squares * unsqueeze(exp(sum(g, 0) - G), 1), 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_z", "chunk_z", "k", "v", "g", "beta", "decay", "squares"},
            [](Tensor s, Tensor chunk_s, Tensor z, Tensor chunk_z, Tensor k, Tensor v, Tensor g, Tensor beta,
               Tensor decay, Tensor squares) -> Results {
                Tensor G = cumsum(g, 0), b = unsqueeze(beta.to(F32), 1), wide = k.to(F32);
                Tensor moment = matmul(decay, squares) + outer(exp(G), z);
                Tensor written = cache_result(wide / (1.0 + relu(moment)), "written");
                Tensor A = tril(matmul(wide, transpose(written)) * decay, -1) * b;
                Tensor solve = inverse(identity(A, A.size(0)) + A);
                Tensor u = cache_result(matmul(solve, v * b), "u");
                Tensor w = cache_result(matmul(solve, k * b * unsqueeze(exp(G), 1)), "w");
                Tensor to_end = written * unsqueeze(exp(sum(g, 0) - G), 1), alpha = exp(sum(g, 0));
                return {{"s", s * alpha + chunk_s + matmul(transpose(to_end), u - matmul(w, s))},
                        {"z", z * alpha + chunk_z}};
            });
    a.merge({"q", "g", "decay", "written", "u", "w", "prev_s", "scale"},
            [](Tensor q, Tensor g, Tensor decay, Tensor written, Tensor u, Tensor w, Tensor s, Tensor scale) {
                Tensor scores = matmul(q.to(F32), transpose(written)) * decay;
                Tensor carried = matmul(q.to(F32), s) * unsqueeze(exp(cumsum(g, 0)), 1);
                return (matmul(scores, u - matmul(w, s)) + carried) * scale;
            });
    a.step({"q", "k", "v", "g", "beta", "prev_s", "prev_z", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor s, Tensor z, Tensor scale) -> Results {
               Tensor decayed = s * exp(g), moment = z * exp(g) + square(k);
               Tensor next = decayed + outer(k / (1.0 + relu(moment)), (v - matmul(k, decayed)) * beta);
               return {{"s", next}, {"z", moment}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
