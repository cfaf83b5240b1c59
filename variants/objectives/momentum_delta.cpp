/// Regression at test time with momentum: Y_t = e^{m_t} Y_{t-1} + (1 - e^{m_t}) β_t k_t (v_t - Sᵀ k_t)ᵀ with
/// S = e^{g_t} S_{t-1}, S_t = S + Y_t, o_t = scale S_tᵀ q_t. The delta rule's gradient goes into an average Y, which
/// decays by e^m, and that into the state: Behrouz et al., "Titans: Learning to Memorize at Test Time", 2024,
/// arXiv:2501.00663, section 3.1, for a memory that is one matrix. The two states are coupled. With D_g and D_m the
/// decays between two tokens, a gradient reaches a later state with the weight (D_g D_m): one solve with these weights
/// is the chunk form.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention momentum_delta() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("momentum_delta");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("g", F32, {T, HV}, kLogDecays).input("m", F32, {T, HV}, kLogDecays);
    a.input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V}).state("y", F32, {K, V});

    a.chunk({"k", "v", "g", "m", "beta", "token_mask"},
            [](Tensor k, Tensor v, Tensor g, Tensor m, Tensor beta, Tensor token_mask) -> Results {
                Tensor G = cumsum(g, 0), M = cumsum(m, 0), step = unsqueeze(beta.to(F32) * (1.0 - exp(m)), 1);
                // [C, C]; the average goes into the state with every token, but with none behind the last.
                Tensor forget = tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0))) * unsqueeze(token_mask, 0);
                Tensor slow = tril(exp(unsqueeze(M, 1) - unsqueeze(M, 0)));
                Tensor weights = cache_result(tril(matmul(forget, slow)), "weights");
                Tensor average = cache_result(matmul(forget, exp(M)), "average");  // [C], of the one before the chunk
                Tensor before = tril(forget, -1);                                  // a token reads before it writes
                Tensor A = tril(matmul_out_fp32(k, transpose(k)) * matmul(before, slow), -1) * step;
                Tensor solve = inverse(identity(A, A.size(0)) + A);
                Tensor u = cache_result(matmul(solve, v * step), "u");
                cache_result(matmul(solve, k * step * unsqueeze(exp(G), 1)), "w_s");
                cache_result(matmul(solve, k * step * unsqueeze(matmul(before, exp(M)), 1)), "w_y");
                Tensor k_s = cache_result(k * unsqueeze(select(weights, 0, -1), 1), "k_s");
                Tensor k_y = cache_result(k * unsqueeze(exp(sum(m, 0) - M), 1), "k_y");
                return {{"s", matmul(transpose(k_s), u)}, {"y", matmul(transpose(k_y), u)}};
            });
    a.decay({"prev_s", "chunk_s", "prev_y", "chunk_y", "g", "m", "average", "w_s", "w_y", "k_s", "k_y"},
            [](Tensor s, Tensor chunk_s, Tensor y, Tensor chunk_y, Tensor g, Tensor m, Tensor average, Tensor w_s,
               Tensor w_y, Tensor k_s, Tensor k_y) -> Results {
                Tensor known = matmul(w_s, s) + matmul(w_y, y);
                Tensor kept = s * exp(sum(g, 0)) + y * select(average, 0, -1);
                return {{"s", kept + chunk_s - matmul(transpose(k_s), known)},
                        {"y", y * exp(sum(m, 0)) + chunk_y - matmul(transpose(k_y), known)}};
            });
    a.merge({"q", "k", "g", "weights", "average", "u", "w_s", "w_y", "prev_s", "prev_y", "scale"},
            [](Tensor q, Tensor k, Tensor g, Tensor weights, Tensor average, Tensor u, Tensor w_s, Tensor w_y, Tensor s,
               Tensor y, Tensor scale) {
                Tensor wide = q.to(F32), updates = u - matmul(w_s, s) - matmul(w_y, y);
                Tensor within = matmul(matmul_out_fp32(q, transpose(k)) * weights, updates);
                Tensor carried = matmul(wide, s) * unsqueeze(exp(cumsum(g, 0)), 1);
                return (within + carried + matmul(wide, y) * unsqueeze(average, 1)) * scale;
            });
    a.step(
        {"q", "k", "v", "g", "m", "beta", "prev_s", "prev_y", "scale"},
        [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor m, Tensor beta, Tensor s, Tensor y, Tensor scale) -> Results {
            Tensor decayed = s * exp(g);
            Tensor next_y = y * exp(m) + outer(k, (v - matmul(k, decayed)) * (beta * (1.0 - exp(m))));
            Tensor next_s = decayed + next_y;
            return {{"s", next_s}, {"y", next_y}, {"o", matmul(q, next_s) * scale}};
        });
    return a;
}

}  // namespace forge::variants
