/// A contrastive objective, by its gradient at the state before the chunk: tokens are drawn to their own value and
/// pushed off what the memory answers for their key already. Within a chunk of 64 tokens that begins with the state B,
/// S_t = S_{t-1} + β_t/64 k_t (v_t - Bᵀ k_t)ᵀ, o_t = scale S_tᵀ q_t; the state after the last token is the next chunk's
/// B. The two terms are those of contrastive Hebbian learning, Movellan, "Contrastive Hebbian Learning in the
/// Continuous Hopfield Model", 1991; gradients at the state before a chunk are those of Sun et al., "Learning to (Learn
/// at Test Time)", 2024, arXiv:2407.04620, section 2.4. As all tokens of a chunk take the gradient at B there is
/// nothing to solve.
///
/// The definition lags by a chunk, so that it fixes the chunk's length, and has no `step`: where a chunk begins is not
/// in the state.
#include "variants/variants.h"

namespace forge::variants {

LinearAttention contrastive() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    constexpr std::int64_t kTokens = 64;
    LinearAttention a("contrastive");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, HV, V});
    a.input("beta", BF16, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {K, V});
    a.fixed_chunk(kTokens);

    a.chunk({"k", "v", "beta"}, [](Tensor k, Tensor v, Tensor beta) {
        Tensor keys = cache_result(k * (unsqueeze(beta.to(F32), 1) / double{kTokens}), "keys");  // scaled
        return matmul_out_fp32(transpose(keys.to(v.dtype())), v);
    });
    a.decay({"prev_s", "chunk_state", "k", "keys"}, [](Tensor prev, Tensor chunk, Tensor k, Tensor keys) {
        return prev + chunk - matmul(transpose(keys), matmul(k.to(F32), prev));
    });
    a.merge({"q", "k", "v", "keys", "chunk_state", "scale"},
            [](Tensor q, Tensor k, Tensor v, Tensor keys, Tensor before, Tensor scale) {
                Tensor wide = q.to(F32), scores = tril(matmul(wide, transpose(keys)));
                Tensor errors = v.to(F32) - matmul(k.to(F32), before);
                return (matmul(scores, errors) + matmul(wide, before)) * scale;
            });
    return a;
}

}  // namespace forge::variants
