/// Spectral filtering: rows and columns of the state turn at frequencies of their own, so that a pair of channels on
/// either side keeps what comes at its frequency: S_t = e^{g_t} R S_{t-1} Pᵀ + k_t v_tᵀ, o_t = scale S_tᵀ q_t, with R
/// and P rotations of the first and second half of the channels against each other, by 2^-⌊j/4⌋ per token for channel
/// j. The diagonal complex recurrences of Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences",
/// 2023, arXiv:2303.06349, on both sides of a matrix. What is carried is M = R⁻ⁿ S P⁻ⁿᵀ after n tokens, to which a
/// token adds its key and value turned back; outputs are turned on again. Angles repeat after 1024 tokens, which keeps
/// them exact.
#include "variants/variants.h"

namespace forge::variants {
namespace {

/// The halves of the channels turned against each other by an angle per pair: [C, 2*K] and [C, K], or without C.
Tensor turned_halves(const Tensor& x, const Tensor& angle) {
    const Tensor a = part(x, -1, 0, 2).to(F32), b = part(x, -1, 1, 2).to(F32), c = cos(angle), s = sin(angle);
    return concat({a * c - b * s, b * c + a * s}, -1);
}

/// Of the n-th token, for as many pairs of channels.
Tensor frequencies_at(const Tensor& n, const Dim& pairs) {
    constexpr double kPeriod = 1024;
    const Tensor turn = n - floor(n / kPeriod) * kPeriod, pace = exp2(-floor(arange(n, pairs) / 4.0));
    return n.rank() == 0 ? turn * pace : outer(turn, pace);
}

}  // namespace

LinearAttention spectral() {
    auto [T, H, HV, K, V] = dims("T", "H", "HV", "K", "V");
    const Dim rows = K, columns = V;
    LinearAttention a("spectral");
    a.input("q", BF16, {T, H, 2 * K}).input("k", BF16, {T, H, 2 * K}).input("v", BF16, {T, HV, 2 * V});
    a.input("g", F32, {T, HV}, kLogDecays).scalar("scale");
    a.state("s", F32, {2 * K, 2 * V}).state("n", F32, {});

    a.chunk({"k", "token_mask"}, [rows, columns](Tensor k, Tensor token_mask) -> Results {
        return {{"s", full(k.to(F32), {2 * rows, 2 * columns}, 0)}, {"n", sum(token_mask, 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_n", "chunk_n", "k", "v", "g", "token_mask"},
            [rows, columns](Tensor s, Tensor chunk_s, Tensor n, Tensor chunk_n, Tensor k, Tensor v, Tensor g,
                            Tensor token_mask) -> Results {
                Tensor place = n + cumsum(token_mask, 0);
                Tensor keys = cache_result(turned_halves(k, -frequencies_at(place, rows)), "keys");
                Tensor values = cache_result(turned_halves(v, -frequencies_at(place, columns)), "values");
                Tensor to_end = unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1);
                return {{"s", s * exp(sum(g, 0)) + chunk_s + matmul(transpose(keys * to_end), values)},
                        {"n", n + chunk_n}};
            });
    a.merge({"q", "g", "keys", "values", "token_mask", "prev_s", "prev_n", "scale"},
            [rows, columns](Tensor q, Tensor g, Tensor keys, Tensor values, Tensor token_mask, Tensor s, Tensor n,
                            Tensor scale) {
                Tensor place = n + cumsum(token_mask, 0), G = cumsum(g, 0);
                Tensor reading = turned_halves(q, -frequencies_at(place, rows));
                Tensor scores = tril(matmul(reading, transpose(keys)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                Tensor still = matmul(scores, values) + matmul(reading, s) * unsqueeze(exp(G), 1);
                return turned_halves(still, frequencies_at(place, columns)) * scale;
            });
    a.step({"q", "k", "v", "g", "prev_s", "prev_n", "scale"},
           [rows, columns](Tensor q, Tensor k, Tensor v, Tensor g, Tensor s, Tensor n, Tensor scale) -> Results {
               Tensor place = n + 1.0, back = -frequencies_at(place, rows), on = frequencies_at(place, columns);
               Tensor next = s * exp(g) + outer(turned_halves(k, back), turned_halves(v, -on));
               Tensor o = turned_halves(matmul(turned_halves(q, back), next), on) * scale;
               return {{"s", next}, {"n", place}, {"o", o}};
           });
    return a;
}

}  // namespace forge::variants
