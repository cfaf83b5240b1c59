/// Running sums, first-order recurrences and reductions of tiles along either axis.
///
/// "rows" runs over axis 0, each column on its own, vectors across the columns; "cols" runs along
/// axis 1. Sums are sums: an exclusive or reverse sum is never a difference, so -inf gives -inf and
/// not NaN. Results may overwrite their sources in place when the strides agree. NaN propagates,
/// also through maxima.
#pragma once

#include "vec.h"

namespace forge::cpu {

namespace detail {

// Lane l of the result is the sum of lanes 0 … l of x; REVERSE: of lanes l … kWidth - 1.
template <bool REVERSE, int D = 1>
FORGE_INLINE vec running_sum(vec x) {
    if constexpr (D < kWidth) {
        return running_sum<REVERSE, 2 * D>(x + shift<REVERSE ? -D : D>(x));
    } else {
        return x;
    }
}

// The vectors of one row of N, last to first when REVERSE: f(offset, vector).
template <int N, bool REVERSE, class F>
FORGE_INLINE void each_vector(const float* src, F f) {
    for (int n = 0; n < vectors(N); ++n) {
        const int j = (REVERSE ? vectors(N) - 1 - n : n) * kWidth;
        const vec x = load(src + j);
        f(j, N - j < kWidth ? keep_first(x, N - j) : x);
    }
}

// The columns of N in panels of up to four vectors, enough to hide the latency of a running
// operation: f(Lanes<number of vectors>, first column).
template <int N, class F>
FORGE_INLINE void each_panel(F f) {
    constexpr int kRest = vectors(N) % 4;
    int j = 0;
    for (; j + 4 * kWidth <= vectors(N) * kWidth; j += 4 * kWidth) f(Lanes<4>{}, j);
    if constexpr (kRest > 0) f(Lanes<kRest>{}, j);
}

// dst[j] = op over all rows of column j.
template <int M, int N, int LD, class Op>
FORGE_INLINE void reduce_rows(const float* src, float* dst, Op op) {
    each_panel<N>([&]<int V>(Lanes<V>, int j) {
        vec total[V];
        for (int v = 0; v < V; ++v) total[v] = load(src + j + v * kWidth);
        for (int i = 1; i < M; ++i) {
            for (int v = 0; v < V; ++v) total[v] = op(total[v], load(src + i * LD + j + v * kWidth));
        }
        for (int v = 0; v < V; ++v) store(dst + j + v * kWidth, total[v]);
    });
}

}  // namespace detail

/// dst[i] = src[0] + … + src[i]; REVERSE: from the end; EXCLUSIVE: without src[i] itself.
template <int N, bool REVERSE, bool EXCLUSIVE>
inline void cumsum(const float* src, float* dst) {
    float carry = 0;
    detail::each_vector<N, REVERSE>(src, [&](int j, vec x) {
        const vec sum = detail::running_sum<REVERSE>(x) + carry;
        store(dst + j, EXCLUSIVE ? shift<REVERSE ? -1 : 1>(sum, broadcast(carry)) : sum);
        carry = sum[REVERSE ? 0 : kWidth - 1];
    });
}

/// `cumsum` along axis 1, each row on its own.
template <int M, int N, int LDS, int LDD, bool REVERSE, bool EXCLUSIVE>
inline void cumsum_cols(const float* src, float* dst) {
    for (int i = 0; i < M; ++i) cumsum<N, REVERSE, EXCLUSIVE>(src + i * LDS, dst + i * LDD);
}

/// `cumsum` along axis 0, each column on its own.
template <int M, int N, int LDS, int LDD, bool REVERSE, bool EXCLUSIVE>
inline void cumsum_rows(const float* src, float* dst) {
    detail::each_panel<N>([&]<int V>(Lanes<V>, int j) {
        vec sum[V] = {};
        for (int n = 0; n < M; ++n) {
            const int i = REVERSE ? M - 1 - n : n;
            for (int v = 0; v < V; ++v) {
                const vec next = sum[v] + load(src + i * LDS + j + v * kWidth);
                store(dst + i * LDD + j + v * kWidth, EXCLUSIVE ? sum[v] : next);
                sum[v] = next;
            }
        }
    });
}

/// dst[i] = src[0] * … * src[i] along axis 0, each column on its own.
template <int M, int N, int LDS, int LDD>
inline void cumprod_rows(const float* src, float* dst) {
    detail::each_panel<N>([&]<int V>(Lanes<V>, int j) {
        vec product[V];
        for (int i = 0; i < M; ++i) {
            for (int v = 0; v < V; ++v) {
                const vec x = load(src + i * LDS + j + v * kWidth);
                product[v] = i == 0 ? x : product[v] * x;
                store(dst + i * LDD + j + v * kWidth, product[v]);
            }
        }
    });
}

/// … along axis 1, each row on its own.
template <int M, int N, int LDS, int LDD>
inline void cumprod_cols(const float* src, float* dst) {
    for (int i = 0; i < M; ++i) {
        float product = 1.0f;
        for (int j = 0; j < N; ++j) dst[i * LDD + j] = product *= src[i * LDS + j];
    }
}

/// h[i] = a[i] * h[i - 1] + x[i] along axis 0, from h[-1] = h0.
template <int M, int N, int LDA, int LDX, int LDD>
inline void linear_scan_from(const float* a, const float* x, const float* h0, float* dst) {
    detail::each_panel<N>([&]<int V>(Lanes<V>, int j) {
        vec h[V];
        for (int v = 0; v < V; ++v) h[v] = load(h0 + j + v * kWidth);
        for (int i = 0; i < M; ++i) {
            for (int v = 0; v < V; ++v) {
                const int c = j + v * kWidth;
                h[v] = load(a + i * LDA + c) * h[v] + load(x + i * LDX + c);
                store(dst + i * LDD + c, h[v]);
            }
        }
    });
}

/// h[i] = a[i] * h[i - 1] + x[i] along axis 0, from h[-1] = 0; a[0] does not matter.
template <int M, int N, int LDA, int LDX, int LDD>
inline void linear_scan(const float* a, const float* x, float* dst) {
    for (int j = 0; j < N; j += kWidth) store(dst + j, load(x + j));
    if constexpr (M > 1) linear_scan_from<M - 1, N, LDA, LDX, LDD>(a + LDA, x + LDX, dst, dst + LDD);
}

/// linear_scan, or, EXCLUSIVE, the h before each row: 0 in the first.
template <int M, int N, int LDA, int LDX, int LDD, bool EXCLUSIVE>
inline void linear_scan_forward(const float* a, const float* x, float* dst) {
    if constexpr (!EXCLUSIVE) return linear_scan<M, N, LDA, LDX, LDD>(a, x, dst);
    for (int j = 0; j < N; j += kWidth) store(dst + j, vec{});
    if constexpr (M > 1) linear_scan<M - 1, N, LDA, LDX, LDD>(a, x, dst + LDD);
}

/// h[i] = a[i + 1] * h[i + 1] + x[i] along axis 0, from h[M] = 0: the same over rows in reverse, whose factors stand one
/// row further on. EXCLUSIVE: the h[i + 1] that goes into each row.
template <int M, int N, int LDA, int LDX, int LDD, bool EXCLUSIVE>
inline void linear_scan_reverse(const float* a, const float* x, float* dst) {
    linear_scan_forward<M, N, -LDA, -LDX, -LDD, EXCLUSIVE>(a + M * LDA, x + (M - 1) * LDX, dst + (M - 1) * LDD);
}

/// Sum over axis 0: [M, N] to [N].
template <int M, int N, int LD>
inline void sum_rows(const float* src, float* dst) {
    detail::reduce_rows<M, N, LD>(src, dst, [](vec a, vec b) { return a + b; });
}

/// Maximum over axis 0: [M, N] to [N].
template <int M, int N, int LD>
inline void amax_rows(const float* src, float* dst) {
    detail::reduce_rows<M, N, LD>(src, dst, [](vec a, vec b) { return maximum(a, b); });
}

/// Sum of N contiguous values.
template <int N>
inline float sum(const float* src) {
    vec total{};
    detail::each_vector<N, false>(src, [&](int, vec x) { total += x; });
    return hsum(total);
}

/// Maximum of N contiguous values.
template <int N>
inline float amax(const float* src) {
    const vec lowest = broadcast(-__builtin_inff());
    vec most = lowest;
    for (int j = 0; j < N; j += kWidth) {
        const vec x = load(src + j);
        most = maximum(most, N - j < kWidth ? keep_first(x, N - j, lowest) : x);
    }
    return hmax(most);
}

/// Sum over axis 1: [M, N] to [M].
template <int M, int N, int LD>
inline void sum_cols(const float* src, float* dst) {
    for (int i = 0; i < M; ++i) dst[i] = sum<N>(src + i * LD);
}

/// Maximum over axis 1: [M, N] to [M].
template <int M, int N, int LD>
inline void amax_cols(const float* src, float* dst) {
    for (int i = 0; i < M; ++i) dst[i] = amax<N>(src + i * LD);
}

}  // namespace forge::cpu
