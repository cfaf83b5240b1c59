/// Decays between tokens of a chunk, from log decays g per token in [-inf, 0] or moderately above.
///
/// decay_mask: g [N] to out [N, N], exp of the sum of g between two tokens.
/// decay_matmul: q, k, g [N, K] to out [N, N], a product in which every channel decays on its own.
/// A decay is a product of exp(g), never exp of a difference of running sums, and nothing divides:
/// -inf gives an exact 0 and no NaN. Above the diagonal the results are 0.
#pragma once

#include "io.h"
#include "math.h"
#include "matmul.h"
#include "scan.h"
#include "transpose.h"

namespace forge::cpu {

/// out[i, j] = exp(g[j + 1] + … + g[i]) for j <= i; EXCLUSIVE: exp(g[j + 1] + … + g[i - 1]) for j <
/// i; else 0.
template <int N, int LD, bool EXCLUSIVE>
__attribute__((noinline)) void decay_mask(const float* g, float* out) {
    alignas(64) float decay[round_up(N, kWidth)];
    for (int i = 0; i < N; i += kWidth) store(decay + i, exp(load(g + i)));
    // Row i is row i - 1 times one decay, and the diagonal starts at 1. Over 128 tokens the relative
    // error stays below 4e-6; running sums under exp would reach 1e-5.
    vec row[vectors(N)] = {};
    for (int i = 0; i < N; ++i) {
        for (int v = 0; v < vectors(N); ++v) {
            if (EXCLUSIVE) store(out + i * LD + v * kWidth, row[v]);
            const int before = i - v * kWidth;  // lanes of earlier tokens
            row[v] = where(iota() < before, row[v] * decay[i], eye(i, v * kWidth));
            if (!EXCLUSIVE) store(out + i * LD + v * kWidth, row[v]);
        }
    }
}

namespace detail {

constexpr int kDecayBlock = 16;

// The layout of decay_matmul's scratch memory.
template <int N, int K>
struct DecayScratch {
    static constexpr int kLdk = round_up(K, kWidth);
    static constexpr int kLdn = round_up(N, kDecayBlock);
    float a[N * kLdk];                // exp(g)
    float left[kDecayBlock * kLdk];   // rows of one block, decayed from the block's start
    float right[kDecayBlock * kLdk];  // rows of one block, decayed to the block's end
    float whole[kLdk];                // the decay over the whole block
    float earlier[K * kLdn];          // transposed: all earlier rows, decayed to the end of the block before
};

// The block's own square: out(i, j) for both in the block. Row j of k is decayed from token to
// token.
template <int R, int K, int LDQ, int LDK, int LDA, int LDO, bool EXCLUSIVE>
__attribute__((noinline)) void decay_square(const float* q, const float* k, const float* a, float* out) {
    for (int i = 0; i < R; ++i) {
        for (int j = 0; j < R; j += kWidth) store(out + i * LDO + j, vec{});
    }
    for (int j = 0; j < R; ++j) {
        vec row[vectors(K)];
        for (int v = 0; v < vectors(K); ++v) row[v] = load(k + j * LDK + v * kWidth);
        for (int i = j + EXCLUSIVE; i < R; ++i) {
            const bool decays = EXCLUSIVE ? i - 1 > j : i > j;
            const float* gate = a + (EXCLUSIVE ? i - 1 : i) * LDA;
            vec sum{};
            for (int v = 0; v < vectors(K); ++v) {
                if (decays) row[v] *= load(gate + v * kWidth);
                const vec term = load(q + i * LDQ + v * kWidth) * row[v];
                sum += K - v * kWidth < kWidth ? keep_first(term, K - v * kWidth) : term;
            }
            out[i * LDO + j] = hsum(sum);
        }
    }
}

// left(i) = q(i) decayed from the block's start to i (EXCLUSIVE: to i - 1); whole = the decay over
// all R rows.
template <int R, int K, int LDQ, int LDA, bool EXCLUSIVE>
FORGE_INLINE void decay_left(const float* q, const float* a, float* left, float* whole) {
    for (int d = 0; d < K; d += kWidth) {
        vec decay = broadcast(1.0f);
        for (int i = 0; i < R; ++i) {
            const vec next = decay * load(a + i * LDA + d);
            store(left + i * LDA + d, load(q + i * LDQ + d) * (EXCLUSIVE ? decay : next));
            decay = next;
        }
        store(whole + d, decay);
    }
}

// right(j) = k(j) decayed from j to the block's end.
template <int R, int K, int LDK, int LDA>
FORGE_INLINE void decay_right(const float* k, const float* a, float* right) {
    for (int d = 0; d < K; d += kWidth) {
        vec decay = broadcast(1.0f);
        for (int j = R - 1; j >= 0; --j) {
            store(right + j * LDA + d, load(k + j * LDK + d) * decay);
            decay *= load(a + j * LDA + d);
        }
    }
}

}  // namespace detail

/// The floats of scratch memory, 64-byte aligned, that decay_matmul<N, K, …> needs.
template <int N, int K>
constexpr int decay_matmul_scratch() {
    return sizeof(detail::DecayScratch<N, K>) / sizeof(float);
}

/// out[i, j] = sum over d of q[i, d] k[j, d] exp(g[j + 1, d] + … + g[i, d]) for j <= i;
/// EXCLUSIVE: exp(g[j + 1, d] + … + g[i - 1, d]) for j < i; else 0.
///
/// Blocks of 16 tokens. Between blocks the decay splits at a block boundary into a factor of q and
/// a factor of k, both products over tokens on their own side, and the rest is a plain product.
/// Inside a block tokens go one by one.
template <int N, int K, int LDQ, int LDK, int LDG, int LDO, bool EXCLUSIVE>
__attribute__((noinline)) void decay_matmul(const float* q, const float* k, const float* g, float* out,
                                            float* scratch) {
    using namespace detail;
    using Scratch = DecayScratch<N, K>;
    constexpr int B = kDecayBlock;
    constexpr int LDA = Scratch::kLdk;
    constexpr int LDN = Scratch::kLdn;
    Scratch& s = *reinterpret_cast<Scratch*>(scratch);

    for (int i = 0; i < N; ++i) {
        for (int d = 0; d < K; d += kWidth) store(s.a + i * LDA + d, exp(load(g + i * LDG + d)));
    }
    const auto block = [&]<int R>(Lanes<R>, int i) {
        const float* a = s.a + i * LDA;
        decay_square<R, K, LDQ, LDK, LDA, LDO, EXCLUSIVE>(q + i * LDQ, k + i * LDK, a, out + i * LDO + i);
        for (int r = 0; r < R; ++r) {
            for (int j = i + B; j < N; j += kWidth) store(out + (i + r) * LDO + j, vec{});
        }
        if (i > 0) {
            decay_left<R, K, LDQ, LDA, EXCLUSIVE>(q + i * LDQ, a, s.left, s.whole);
            for (int j = 0; j < i; j += B) {
                matmul<R, B, K, LDA, 1, LDN, LDO>(s.left, s.earlier + j, out + i * LDO + j);
            }
        }
    };
    int i = 0;
    for (; i + B <= N; i += B) {
        block(Lanes<B>{}, i);
        if (i + B >= N) return;
        for (int d = 0; d < K && i > 0; ++d) {
            for (int j = 0; j < i; j += kWidth) {
                float* earlier = s.earlier + d * LDN + j;
                store(earlier, load(earlier) * s.whole[d]);
            }
        }
        decay_right<B, K, LDK, LDA>(k + i * LDK, s.a + i * LDA, s.right);
        transpose<B, K, LDA, LDN>(s.right, s.earlier + i);
    }
    if constexpr (N % B) block(Lanes<N % B>{}, i);
}

/// out[i, v] = sum of p[i, j] x[j, v] exp(g[j + 1, v] + … + g[i, v]) over j <= i; EXCLUSIVE:
/// exp(g[j + 1, v] + … + g[i - 1, v]) over j < i. p is lower triangular; scratch holds N * LDO floats.
///
/// Blocks of 16 tokens. Rows before the block are kept decayed to the block's start, so that what
/// they give is a plain product times the decay inside the block; the block's own go one by one.
template <int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE>
__attribute__((noinline)) void decay_apply(const float* p, const float* x, const float* g, float* out, float* scratch) {
    const auto block = [&]<int I, int R>(Lanes<I, R>) {
        if constexpr (I > 0) matmul<R, V, I, LDP, 1, LDO, LDO>(p + I * LDP, scratch, out + I * LDO);
        for (int v = 0; v < V; v += kWidth) {
            vec since_start = broadcast(1.0f);
            vec kept[R];  // rows of the block, decayed up to the current one
            for (int r = 0; r < R; ++r) {
                const vec decay = exp(load(g + (I + r) * LDG + v));
                const vec now = load(x + (I + r) * LDX + v);
                float* const y = out + (I + r) * LDO + v;
                if (!EXCLUSIVE) {
                    since_start *= decay;
                    for (int j = 0; j < r; ++j) kept[j] *= decay;
                }
                vec sum = I > 0 ? load(y) * since_start : vec{};
                for (int j = 0; j < r; ++j) sum += broadcast(p[(I + r) * LDP + I + j]) * kept[j];
                if (EXCLUSIVE) {
                    since_start *= decay;
                    for (int j = 0; j < r; ++j) kept[j] *= decay;
                } else {
                    sum += broadcast(p[(I + r) * LDP + I + r]) * now;
                }
                kept[r] = now;
                store(y, sum);
            }
            for (int j = 0; j < I; ++j) store(scratch + j * LDO + v, load(scratch + j * LDO + v) * since_start);
            for (int r = 0; r < R; ++r) store(scratch + (I + r) * LDO + v, kept[r]);
        }
    };
    const auto blocks = [&]<int I>(Lanes<I>, auto next) {
        constexpr int kRows = detail::min(N - I, detail::kDecayBlock);
        block(Lanes<I, kRows>{});
        if constexpr (I + kRows < N) next(Lanes<I + kRows>{}, next);
    };
    blocks(Lanes<0>{}, blocks);
}

/// out[j, v] = sum of p[i, j] x[i, v] exp(g[j + 1, v] + … + g[i, v]) over i >= j; EXCLUSIVE:
/// exp(g[j + 1, v] + … + g[i - 1, v]) over i > j. p is lower triangular; scratch holds N * LDO floats. What decay_apply
/// does, from the last block to the first: rows behind a block are kept decayed to the block's end.
template <int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE>
__attribute__((noinline)) void decay_apply_reverse(const float* p, const float* x, const float* g, float* out,
                                                   float* scratch) {
    const auto block = [&]<int I, int R>(Lanes<I, R>) {
        constexpr int kBehind = I + R;
        if constexpr (kBehind < N)
            matmul<R, V, N - kBehind, 1, LDP, LDO, LDO>(p + kBehind * LDP + I, scratch + kBehind * LDO, out + I * LDO);
        for (int v = 0; v < V; v += kWidth) {
            vec to_end = broadcast(1.0f);
            vec kept[R];  // rows of the block, decayed down to the current one
            for (int r = R - 1; r >= 0; --r) {
                if (r < R - 1) {
                    const vec decay = exp(load(g + (I + r + 1) * LDG + v));
                    to_end *= decay;
                    for (int i = EXCLUSIVE ? r + 2 : r + 1; i < R; ++i) kept[i] *= decay;
                }
                float* const y = out + (I + r) * LDO + v;
                vec sum = kBehind < N ? load(y) * to_end : vec{};
                for (int i = r + 1; i < R; ++i) sum += broadcast(p[(I + i) * LDP + I + r]) * kept[i];
                kept[r] = load(x + (I + r) * LDX + v);
                if (!EXCLUSIVE) sum += broadcast(p[(I + r) * LDP + I + r]) * kept[r];
                store(y, sum);
            }
            const vec first = exp(load(g + I * LDG + v));
            const vec whole = to_end * first;
            for (int i = kBehind; i < N; ++i) store(scratch + i * LDO + v, load(scratch + i * LDO + v) * whole);
            for (int r = 0; r < R; ++r)
                store(scratch + (I + r) * LDO + v, EXCLUSIVE && r == 0 ? kept[r] : kept[r] * first);
        }
    };
    const auto blocks = [&]<int I>(Lanes<I>, auto next) {
        constexpr int kRows = detail::min(N - I, detail::kDecayBlock);
        if constexpr (I + kRows < N) next(Lanes<I + kRows>{}, next);
        block(Lanes<I, kRows>{});
    };
    blocks(Lanes<0>{}, blocks);
}

}  // namespace forge::cpu
