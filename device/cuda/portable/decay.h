/// Decays between tokens of a chunk, from log decays g per token in [-inf, 0] or moderately above.
///
/// decay_mask: g [N] to out [N, N], exp of the sum of g between two tokens.
/// decay_matmul: q, k, g [N, K] to out [N, N], a product in which every channel decays on its own.
/// decay_apply: p [N, N], x, g [N, V] to out [N, V], likewise for the channels of the right operand.
/// A decay is a product of exp(g), never exp of a difference of running sums, and nothing divides: -inf gives an exact
/// 0 and no NaN. Above the diagonal the results are 0.
#pragma once

#include "matmul.h"
#include "scan.h"

namespace forge::cuda {

/// out[i, j] = exp(g[j + 1] + … + g[i]) for j <= i; EXCLUSIVE: exp(g[j + 1] + … + g[i - 1]) for j < i; else 0.
template <int N, int LD, bool EXCLUSIVE>
FORGE_DEVICE void decay_mask(const float* g, float* out) {
    static_assert(N <= 2 * kThreads, "a chunk has no more tokens than the work area has floats");
    constexpr int kParts = max(1, min(kThreads / N, N / 8)), kRows = pieces(N, kParts);
    float* const decay = detail::work();
    sync();
    for (int i = thread(); i < N; i += kThreads) decay[i] = expf(g[i]);
    sync();
    // A thread has a column in some rows. Row i of it is row i - 1 times one decay, and the diagonal starts at 1.
    detail::each_column<N, kParts>([&](int j, int part) {
        const int first = part * kRows, last = min(N, first + kRows);
        float x = 0.0f;  // the entry of row i, from the diagonal on
        for (int i = j; i < first; ++i) x = i == j ? 1.0f : x * decay[i];
#pragma unroll 4
        for (int i = first; i < last; ++i) {
            const float before = x;
            x = i == j ? 1.0f : x * decay[i];
            out[i * LD + j] = EXCLUSIVE ? before : x;
        }
    });
}

namespace detail {

constexpr int kDecayBlock = 16;

/// e^x with an error of 2^-21 (1 + |x| / 8): where decays are made by the thousand.
FORGE_DEVICE float decay_of(float g) { return exp2f(g * 1.44269504f); }

/// Of a block's own square, the columns J0 … J0 + 3, by one warp: a lane has a stretch of the channels.
template <int N, int K, int LDQ, int LDK, int LDG, int LDO, bool EXCLUSIVE, int J0>
FORGE_DEVICE void decay_columns(const float* q, const float* k, const float* g, float* out, int rows) {
    constexpr int R = kDecayBlock, J = 4;
    float sum[J][R] = {};
    const int self = lane();
    for (int d = self; d < round_up(K, kLanes); d += kLanes) {
        const bool inside = K % kLanes == 0 || d < K;
        float left[R], decay[R];
#pragma unroll
        for (int i = J0; i < R; ++i) {
            const bool valid = inside && (N % R == 0 || i < rows);
            left[i] = valid ? q[i * LDQ + d] : 0.0f;
            decay[i] = valid ? decay_of(g[i * LDG + d]) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < J; ++j) {
            float x = inside && (N % R == 0 || J0 + j < rows) ? k[(J0 + j) * LDK + d] : 0.0f;
#pragma unroll
            for (int i = J0 + j + EXCLUSIVE; i < R; ++i) {
                if (i > J0 + j + EXCLUSIVE) x *= decay[i - EXCLUSIVE];
                sum[j][i] += left[i] * x;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < J; ++j)
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const float x = i < J0 + j + EXCLUSIVE ? 0.0f : reduce_lanes<Plus>(sum[j][i]);
            if (self == i && (N % R == 0 || (i < rows && J0 + j < rows))) out[i * LDO + J0 + j] = x;
        }
}

/// left(i) = q(i) decayed from the block's start to i (EXCLUSIVE: to i - 1), in channel d.
template <int LDQ, int LDG, int LDL, bool EXCLUSIVE>
FORGE_DEVICE void decay_left(const float* q, const float* g, float* left, int d, int rows) {
    float decay = 1.0f;
    for (int i = 0; i < rows; ++i) {
        const float next = decay * decay_of(g[i * LDG + d]);
        left[i * LDL + d] = q[i * LDQ + d] * (EXCLUSIVE ? decay : next);
        decay = next;
    }
}

/// earlier(j) = k(j) decayed from j to the end of the block that ends at row `end`, in channel d; rows of the blocks
/// before have come to the end of the block before.
template <int LDK, int LDG, int LDE>
FORGE_DEVICE void decay_earlier(const float* k, const float* g, float* earlier, int d, int end) {
    float decay = 1.0f;
    for (int j = end - 1; j >= end - kDecayBlock; --j) {
        earlier[j * LDE + d] = k[j * LDK + d] * decay;
        decay *= decay_of(g[j * LDG + d]);
    }
    for (int j = 0; j < end - kDecayBlock; ++j) earlier[j * LDE + d] *= decay;
}

}  // namespace detail

/// The floats of shared memory, 16-byte aligned, that decay_matmul<N, K, …> needs besides its operands.
template <int N, int K>
__host__ __device__ constexpr int decay_matmul_scratch() {
    return N <= detail::kDecayBlock ? 0 : round_up(N, detail::kDecayBlock) * skewed(K);
}

/// out[i, j] = sum over d of q[i, d] k[j, d] exp(g[j + 1, d] + … + g[i, d]) for j <= i;
/// EXCLUSIVE: exp(g[j + 1, d] + … + g[i - 1, d]) for j < i; else 0.
///
/// Blocks of 16 tokens. Between blocks the decay splits at a block boundary into a factor of q and a factor of k, both
/// products over tokens on their own side, and the rest is a plain product. Inside a block tokens go one by one.
template <int N, int K, int LDQ, int LDK, int LDG, int LDO, bool EXCLUSIVE, Precision P>
FORGE_DEVICE void decay_matmul(const float* q, const float* k, const float* g, float* out, float* scratch) {
    using namespace detail;
    constexpr int B = kDecayBlock, kBlocks = pieces(N, B), LD = skewed(K);
    for (int task = warp(); task < kBlocks * 4; task += kWarps) {
        const int i = task / 4 * B, rows = min(B, N - i);
        const float *qi = q + i * LDQ, *ki = k + i * LDK, *gi = g + i * LDG;
        float* const square = out + i * (LDO + 1);
        switch (task % 4) {
            case 0:
                decay_columns<N, K, LDQ, LDK, LDG, LDO, EXCLUSIVE, 0>(qi, ki, gi, square, rows);
                break;
            case 1:
                decay_columns<N, K, LDQ, LDK, LDG, LDO, EXCLUSIVE, 4>(qi, ki, gi, square, rows);
                break;
            case 2:
                decay_columns<N, K, LDQ, LDK, LDG, LDO, EXCLUSIVE, 8>(qi, ki, gi, square, rows);
                break;
            case 3:
                decay_columns<N, K, LDQ, LDK, LDG, LDO, EXCLUSIVE, 12>(qi, ki, gi, square, rows);
                break;
        }
    }
    for (int n = thread(); n < N * N; n += kThreads)
        if (n % N / B > n / N / B) out[n / N * LDO + n % N] = 0.0f;
    float* const left = scratch;
    float* const earlier = scratch + B * LD;
    for (int i = B; i < N; i += B) {
        const int rows = min(B, N - i);
        for (int n = thread(); n < 2 * K; n += kThreads) {
            if (n < K) decay_left<LDQ, LDG, LD, EXCLUSIVE>(q + i * LDQ, g + i * LDG, left, n, rows);
            else decay_earlier<LDK, LDG, LD>(k, g, earlier, n - K, i);
        }
        sync();
        for (int j = warp() * 8; j < i; j += kWarps * 8) {
            Product<B, N, K, LD, 1, 1, LD, P, 1, 1> product;
            product.run(left, earlier, 0, j, 0, K);
            product.each(0, j, rows, i,
                         [&](int r, int c, float x, float y) { put<Acc::Set>(out + (i + r) * LDO + c, x, y); });
        }
        sync();
    }
}

namespace detail {

/// One channel of the block of R rows from row I on. `out` holds what earlier rows give, decayed to the block's start;
/// `kept` the rows of x up to here, decayed to the block's start and then to its end.
template <int I, int R, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE, bool LAST>
FORGE_DEVICE void decay_apply_block(const float* p, const float* x, const float* g, float* out, float* kept) {
    float since_start = 1.0f;
    float own[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const float decay = decay_of(g[(I + r) * LDG]);
        if (!EXCLUSIVE) {
            since_start *= decay;
#pragma unroll
            for (int j = 0; j < r; ++j) own[j] *= decay;
        }
        float sum = I > 0 ? out[(I + r) * LDO] * since_start : 0.0f;
#pragma unroll
        for (int j = 0; j < r; ++j) sum += p[(I + r) * LDP + I + j] * own[j];
        own[r] = x[(I + r) * LDX];
        if (EXCLUSIVE) {
            since_start *= decay;
#pragma unroll
            for (int j = 0; j < r; ++j) own[j] *= decay;
        } else {
            sum += p[(I + r) * LDP + I + r] * own[r];
        }
        out[(I + r) * LDO] = sum;
    }
    if (!LAST) {
        for (int j = 0; j < I; ++j) kept[j * LDO] *= since_start;
#pragma unroll
        for (int r = 0; r < R; ++r) kept[(I + r) * LDO] = own[r];
    }
}

template <int I, int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE, Precision P>
FORGE_DEVICE void decay_apply_from(const float* p, const float* x, const float* g, float* out, float* kept) {
    if constexpr (I < N) {
        constexpr int R = min(N - I, kDecayBlock);
        if constexpr (I > 0) {
            sync();
            matmul<R, V, I, LDP, 1, LDO, 1, LDO, P>(p + I * LDP, kept, out + I * LDO);
            sync();
        }
        for (int v = thread(); v < V; v += kThreads)
            decay_apply_block<I, R, LDP, LDX, LDG, LDO, EXCLUSIVE, I + R == N>(p, x + v, g + v, out + v, kept + v);
        decay_apply_from<I + R, N, V, LDP, LDX, LDG, LDO, EXCLUSIVE, P>(p, x, g, out, kept);
    }
}

}  // namespace detail

/// out[i, v] = sum of p[i, j] x[j, v] exp(g[j + 1, v] + … + g[i, v]) over j <= i; EXCLUSIVE:
/// exp(g[j + 1, v] + … + g[i - 1, v]) over j < i. p is lower triangular; scratch holds N * LDO floats if N is beyond a
/// block.
///
/// Blocks of 16 tokens. Rows before the block are kept decayed to the block's start, so that what they give is a plain
/// product times the decay inside the block; the block's own go one by one.
template <int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE, Precision P>
FORGE_DEVICE void decay_apply(const float* p, const float* x, const float* g, float* out, float* scratch) {
    detail::decay_apply_from<0, N, V, LDP, LDX, LDG, LDO, EXCLUSIVE, P>(p, x, g, out, scratch);
}

namespace detail {

/// One channel of a block of decay_apply_reverse: `out` holds what later rows give, decayed to the block's end; `kept`
/// the rows of x from here on, decayed to the block's end and then to its beginning.
template <int I, int R, int N, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE>
FORGE_DEVICE void decay_apply_reverse_block(const float* p, const float* x, const float* g, float* out, float* kept) {
    constexpr int kBehind = I + R;
    float to_end = 1.0f;
    float own[R];
#pragma unroll
    for (int r = R - 1; r >= 0; --r) {
        if (r < R - 1) {
            const float decay = decay_of(g[(I + r + 1) * LDG]);
            to_end *= decay;
#pragma unroll
            for (int i = EXCLUSIVE ? r + 2 : r + 1; i < R; ++i) own[i] *= decay;
        }
        float sum = kBehind < N ? out[(I + r) * LDO] * to_end : 0.0f;
#pragma unroll
        for (int i = r + 1; i < R; ++i) sum += p[(I + i) * LDP + I + r] * own[i];
        own[r] = x[(I + r) * LDX];
        if (!EXCLUSIVE) sum += p[(I + r) * LDP + I + r] * own[r];
        out[(I + r) * LDO] = sum;
    }
    if (I > 0) {
        const float first = decay_of(g[I * LDG]);
        for (int i = kBehind; i < N; ++i) kept[i * LDO] *= to_end * first;
#pragma unroll
        for (int r = 0; r < R; ++r) kept[(I + r) * LDO] = EXCLUSIVE && r == 0 ? own[r] : own[r] * first;
    }
}

template <int I, int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE, Precision P>
FORGE_DEVICE void decay_apply_reverse_from(const float* p, const float* x, const float* g, float* out, float* kept) {
    if constexpr (I < N) {
        constexpr int R = min(N - I, kDecayBlock), kBehind = I + R;
        decay_apply_reverse_from<kBehind, N, V, LDP, LDX, LDG, LDO, EXCLUSIVE, P>(p, x, g, out, kept);
        if constexpr (kBehind < N) {
            sync();
            matmul<R, V, N - kBehind, 1, LDP, LDO, 1, LDO, P>(p + kBehind * LDP + I, kept + kBehind * LDO,
                                                              out + I * LDO);
            sync();
        }
        for (int v = thread(); v < V; v += kThreads)
            decay_apply_reverse_block<I, R, N, LDP, LDX, LDG, LDO, EXCLUSIVE>(p, x + v, g + v, out + v, kept + v);
    }
}

}  // namespace detail

/// out[j, v] = sum of p[i, j] x[i, v] exp(g[j + 1, v] + … + g[i, v]) over i >= j; EXCLUSIVE:
/// exp(g[j + 1, v] + … + g[i - 1, v]) over i > j. p is lower triangular; scratch holds N * LDO floats if N is beyond a
/// block. What decay_apply does, from the last block to the first.
template <int N, int V, int LDP, int LDX, int LDG, int LDO, bool EXCLUSIVE, Precision P>
FORGE_DEVICE void decay_apply_reverse(const float* p, const float* x, const float* g, float* out, float* scratch) {
    detail::decay_apply_reverse_from<0, N, V, LDP, LDX, LDG, LDO, EXCLUSIVE, P>(p, x, g, out, scratch);
}

}  // namespace forge::cuda
