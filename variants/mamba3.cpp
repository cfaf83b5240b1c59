/// Mamba-3 with rank 2: S_t = e^{g_t} R(θ_t)ᵀ (S_{t-1} + (1 - λ_t) Δ_t Σ_r k'_r v'_rᵀ) + λ_t Δ_t Σ_r k_r v_rᵀ, o_{t,r}
/// = scale S_tᵀ q_{t,r}, with k' and v' the token's before. The exponential-trapezoidal rule mixes this token's input
/// with the last one's, which decays and turns as the state does; R turns the first half of the channels against the
/// second, by an angle of the token's own per pair (complex decays, as rotary embeddings that depend on data); several
/// keys and values per token (MIMO) are rows 2t and 2t + 1 of q, k, v and o. Lahoti et al., "Mamba-3", 2026,
/// arXiv:2603.15569, sections 3.1 to 3.3. Here g = Δ A, θ is the angle times Δ, and q, k, v are C, B, x.
#include "variants/variants.h"

namespace forge::variants {
namespace {

constexpr std::int64_t kRank = 2;

/// The halves of an axis turned against each other by an angle per pair.
Tensor turned_pairs(const Tensor& x, const Tensor& angle, int dim) {
    const Tensor a = part(x, dim, 0, 2), b = part(x, dim, 1, 2), c = cos(angle), s = sin(angle);
    return concat({a * c - b * s, b * c + a * s}, dim);
}

/// From tokens to rows.
Tensor of_rows(const Tensor& x) { return repeat_interleave(x, kRank, 0); }

}  // namespace

LinearAttention mamba3() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    LinearAttention a("mamba3");
    a.input("q", BF16, {kRank * T, H, 2 * K}).input("k", BF16, {kRank * T, H, 2 * K});
    a.input("v", BF16, {kRank * T, HV, V}).input("g", F32, {T, HV}, kLogDecays).input("theta", F32, {T, H, K});
    a.input("dt", F32, {T, HV}, kZeroToOne).input("mix", F32, {T, HV}, kZeroToOne).scalar("scale");
    a.state("s", F32, {2 * K, V}).output("o", BF16, {kRank * T, HV, V});

    // Angles and decays count from the chunk's beginning: none of this reads the state.
    a.chunk({"k", "v", "g", "theta", "dt", "mix"}, [](Tensor k, Tensor v, Tensor g, Tensor theta, Tensor dt,
                                                      Tensor mix) {  // -> [2K, V]
        Tensor G = cumsum(g, 0), angle = cumsum(theta, 0);
        Tensor now = unsqueeze(of_rows(mix * dt), 1), last = unsqueeze(of_rows((1.0 - mix) * dt * exp(g)), 1);
        Tensor keys = cache_result(turned_pairs(k.to(F32), of_rows(angle), 1) * now, "keys");
        Tensor before =
            cache_result(turned_pairs(prev_token(k).to(F32), of_rows(angle - theta), 1) * last, "keys_before");
        Tensor to_end = unsqueeze(of_rows(exp(sum(g, 0) - G)), 1), back = unsqueeze(-sum(theta, 0), 0);
        const auto at_end = [&](const Tensor& x) { return transpose(turned_pairs(x * to_end, back, 1)).to(v.dtype()); };
        return matmul_out_fp32(at_end(keys), v) + matmul_out_fp32(at_end(before), prev_token(v));
    });
    a.decay({"prev_s", "chunk_state", "g", "theta"}, [](Tensor prev, Tensor chunk, Tensor g, Tensor theta) {
        return turned_pairs(prev, unsqueeze(-sum(theta, 0), 1), 0) * exp(sum(g, 0)) + chunk;
    });
    a.merge({"q", "v", "g", "theta", "keys", "keys_before", "chunk_state", "scale"},
            [](Tensor q, Tensor v, Tensor g, Tensor theta, Tensor keys, Tensor before, Tensor s, Tensor scale) {
                Tensor G = cumsum(g, 0), decay = tril(exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                Tensor of_pairs = repeat_interleave(of_rows(decay), kRank, 1);  // [2C, 2C]; 0 for later tokens
                Tensor reading = turned_pairs(q.to(F32), of_rows(cumsum(theta, 0)), 1);
                const auto within = [&](const Tensor& written, const Tensor& values) {
                    return matmul_out_fp32((matmul(reading, transpose(written)) * of_pairs).to(values.dtype()), values);
                };
                Tensor carried = matmul(reading, s) * unsqueeze(of_rows(exp(G)), 1);
                return (within(keys, v) + within(before, prev_token(v)) + carried) * scale;  // -> [2C, V]
            });
    a.step({"q", "k", "v", "g", "theta", "dt", "mix", "prev_s", "scale"},
           [](Tensor q, Tensor k, Tensor v, Tensor g, Tensor theta, Tensor dt, Tensor mix, Tensor s,
              Tensor scale) -> Results {
               Tensor last = matmul(transpose(prev_token(k)), prev_token(v)) * ((1.0 - mix) * dt);
               Tensor next =
                   turned_pairs(s + last, unsqueeze(-theta, 1), 0) * exp(g) + matmul(transpose(k), v) * (mix * dt);
               return {{"s", next}, {"o", matmul(q, next) * scale}};
           });
    return a;
}

}  // namespace forge::variants
