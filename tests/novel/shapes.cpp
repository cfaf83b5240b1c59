// Values taken apart and put together: halves and pairs of channels, several rows per token, places of tokens and of
// channels, and states that are replaced.
#include "tests/novel/programs.h"

namespace forge::novel {
namespace {

/// The first and second half of the channels turned by an angle per channel pair: [C, 2*K] and [C, K].
Tensor turned(const Tensor& x, const Tensor& angle) {
    const Tensor a = part(x, -1, 0, 2).to(F32), b = part(x, -1, 1, 2).to(F32), c = cos(angle), s = sin(angle);
    return concat({a * c - b * s, b * c + a * s}, -1);
}

/// The angles of a token's place, which repeat after 64 tokens. Exact in float32.
Tensor angles_at(const Tensor& place, const Dim& pairs) {
    const Tensor turn = place - floor(place / 64.0) * 64.0;
    const Tensor pace = exp2(-floor(arange(place, pairs) / 4.0));
    return place.rank() == 0 ? turn * pace : outer(turn, pace);
}

}  // namespace

/// Rotary embeddings: q and k are turned by angles of the token's place in its sequence, which a state of rank 0
/// counts. S = S + k' vᵀ, n = n + 1.
LinearAttention rotary() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("rotary");
    a.input("q", BF16, {T, H, 2 * K}).input("k", BF16, {T, H, 2 * K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {2 * K, V}).state("n", F32, {});
    const Dim pairs = K;

    a.chunk({"v", "token_mask"}, [](Tensor v, Tensor token_mask) -> Results {
        Tensor values = cache_result(v.to(F32), "values");
        return {{"s", full(values, {2 * Dim("K"), values.size(1)}, 0)}, {"n", sum(token_mask, 0)}};
    });
    a.decay({"prev_s", "chunk_s", "prev_n", "chunk_n", "k", "values", "token_mask"},
            [pairs](Tensor s, Tensor chunk_s, Tensor n, Tensor chunk_n, Tensor k, Tensor values,
                    Tensor token_mask) -> Results {
                Tensor place = n + cumsum(token_mask, 0, {.exclusive = true});
                Tensor keys = cache_result(turned(k, angles_at(place, pairs)), "keys");
                return {{"s", s + chunk_s + matmul(transpose(keys), values)}, {"n", n + chunk_n}};
            });
    a.merge({"q", "keys", "values", "token_mask", "prev_s", "prev_n"},
            [pairs](Tensor q, Tensor keys, Tensor values, Tensor token_mask, Tensor s, Tensor n) {
                Tensor place = n + cumsum(token_mask, 0, {.exclusive = true});
                Tensor reading = turned(q, angles_at(place, pairs));
                return matmul(tril(matmul(reading, transpose(keys))), values) + matmul(reading, s);
            });
    a.step({"q", "k", "v", "prev_s", "prev_n"}, [pairs](Tensor q, Tensor k, Tensor v, Tensor s, Tensor n) -> Results {
        Tensor angle = angles_at(n, pairs);
        Tensor next = s + outer(turned(k, angle), v);
        return {{"s", next}, {"n", n + 1.0}, {"o", matmul(turned(q, angle), next)}};
    });
    return a;
}

/// Pairs of neighbouring channels turned by an angle that each token brings along; the values' axis stays whole. Every
/// key is stacked with its rounding, of which the state has the sum.
LinearAttention turned_pairs() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("turned_pairs");
    a.input("q", BF16, {T, H, 2 * K}).input("k", BF16, {T, H, 2 * K}).input("v", BF16, {T, H, V});
    a.input("x", F32, {T, H});
    a.state("s", F32, {2 * K, V});

    const auto keys_of = [](const Tensor& k, const Tensor& x) {
        const Tensor even = slice(k, -1, 0, 2).to(F32), odd = slice(k, -1, 1, 2).to(F32);
        const Tensor angle = x * sign(arange(x, k.size(-1)));  // the first channel of all stays
        const Tensor c = cos(slice(angle, -1, 0, 2)), s = sin(slice(angle, -1, 1, 2));
        return interleave({even * c - odd * s, odd * c + even * s}, -1);
    };
    a.chunk({"k", "v", "x"}, [keys_of](Tensor k, Tensor v, Tensor x) {
        Tensor keys = cache_result(keys_of(k, unsqueeze(x, 1)), "keys");
        return matmul(transpose(keys), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
    a.merge({"q", "v", "keys", "chunk_state"}, [](Tensor q, Tensor v, Tensor keys, Tensor before) {
        Tensor wide = q.to(F32);
        return matmul(tril(matmul(wide, transpose(keys))), v.to(F32)) + matmul(wide, before);
    });
    a.step({"q", "k", "v", "x", "prev_s"}, [keys_of](Tensor q, Tensor k, Tensor v, Tensor x, Tensor s) -> Results {
        Tensor next = s + outer(keys_of(k, x), v);
        return {{"s", next}, {"o", matmul(q, next)}};
    });
    return a;
}

/// Two rows of output per token: what the memory says and how it differs from its mean; the memory decays by products
/// of gates. Two states are replaced: the values of the token before, and a level that is the same after every token.
LinearAttention two_readings() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    constexpr double kLevel = 0.5;
    LinearAttention a("two_readings");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("alpha", F32, {T, H}, 1.0);
    a.state("s", F32, {K, V}).state("last", F32, {V}).state("level", F32, {V});
    a.output("o", BF16, {2 * T, H, V});

    a.chunk({"k", "v", "alpha", "token_mask"}, [](Tensor k, Tensor v, Tensor alpha, Tensor token_mask) -> Results {
        Tensor values = cache_result(v.to(F32), "values"), count = cumsum(token_mask, 0);
        Tensor to_end = exp(cumsum(log(alpha), 0, {.reverse = true, .exclusive = true}));
        Tensor is_last = where(eq(count, sum(token_mask, 0)), token_mask, 0.0);
        return {{"s", matmul(transpose(k * unsqueeze(to_end, 1)), values)},
                {"last", sum(values * unsqueeze(is_last, 1), 0)},
                {"level", full(values, {values.size(1)}, kLevel)}};
    });
    a.decay({"prev_s", "chunk_s", "chunk_last", "chunk_level", "alpha"},
            [](Tensor s, Tensor chunk_s, Tensor last, Tensor level, Tensor alpha) -> Results {
                return {{"s", s * select(cumprod(alpha, 0), 0, -1) + chunk_s}, {"last", last}, {"level", level}};
            });
    a.merge({"q", "k", "v", "values", "alpha", "token_mask", "prev_s", "prev_last", "prev_level"},
            [](Tensor q, Tensor k, Tensor v, Tensor values, Tensor alpha, Tensor token_mask, Tensor s, Tensor last,
               Tensor level) {
                Tensor G = cumsum(log(alpha), 0), first = unsqueeze(eq(cumsum(token_mask, 0), 1.0), 1);
                Tensor scores = tril(matmul_out_fp32(q, transpose(k)) * exp(unsqueeze(G, 1) - unsqueeze(G, 0)));
                Tensor read = matmul(scores, values) + matmul(q.to(F32), s) * unsqueeze(cumprod(alpha, 0), 1);
                Tensor before = where(first, last, prev_token(v).to(F32)), base = where(first, level, kLevel);
                Tensor o = read + before * base;
                return interleave({o, o - unsqueeze(mean(o, 1), 1)}, 0);
            });
    a.step({"q", "k", "v", "alpha", "prev_s", "prev_last", "prev_level"},
           [](Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor s, Tensor last, Tensor level) -> Results {
               Tensor next = s * alpha + outer(k, v);
               Tensor o = matmul(q, next) + last * level;
               return {{"s", next},
                       {"last", v.to(F32)},
                       {"level", full(v.to(F32), {v.size(0)}, kLevel)},
                       {"o", stack({o, o - mean(o, 0)}, 0)}};
           });
    return a;
}

}  // namespace forge::novel
