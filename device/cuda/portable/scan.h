/// Running sums, first-order recurrences and reductions of tiles along either axis.
///
/// "rows" runs over axis 0: a column belongs to a thread, or to several, each with a part of the rows, where there are
/// threads to spare. "cols" runs along axis 1: a row belongs to a warp. Sums are sums: an exclusive or reverse sum is
/// never a difference, so -inf gives -inf and not NaN. NaN propagates, also through maxima. Results do not overlap
/// sources.
#pragma once

#include "math.h"

namespace forge::cuda {

namespace detail {

/// A few floats that any function may use between its own sync()s; it begins with one, as the function before may still
/// be reading.
FORGE_DEVICE float* work() {
#ifdef FORGE_GROUPS
    __shared__ float floats[FORGE_GROUPS * 2 * kThreads];
    return floats + ptx::group_in_block() * 2 * kThreads;
#else
    __shared__ float floats[2 * kThreads];
    return floats;
#endif
}

struct Plus {
    FORGE_DEVICE static float nothing() { return 0.0f; }
    FORGE_DEVICE static float of(float a, float b) { return a + b; }
};
struct Larger {
    FORGE_DEVICE static float nothing() { return -__builtin_inff(); }
    FORGE_DEVICE static float of(float a, float b) { return scalar::maximum(a, b); }
};

/// x of all lanes, combined; every lane has the result.
template <class Op>
FORGE_DEVICE float reduce_lanes(float x) {
    for (int n = kLanes / 2; n > 0; n /= 2) x = Op::of(x, __shfl_xor_sync(kAllLanes, x, n));
    return x;
}

/// N contiguous values, by one warp; every lane has the result.
template <int N, class Op>
FORGE_DEVICE float reduce_row(const float* src) {
    float x = Op::nothing();
    for (int j = lane(); j < N; j += kLanes) x = Op::of(x, src[j]);
    return reduce_lanes<Op>(x);
}

/// The rows of an M x N tile as parts that different threads take: a power of two of parts, none too short to pay.
__host__ __device__ constexpr int row_parts(int m, int n) {
    int parts = 1;
    while (2 * parts * n <= kThreads && m / (2 * parts) >= 8) parts *= 2;
    return parts;
}

/// f(column, part) for all of a tile's columns and parts of rows, shared out over the threads.
template <int N, int PARTS, class F>
FORGE_DEVICE void each_column(F f) {
    for (int n = thread(); n < N * PARTS; n += kThreads) f(n % N, n / N);
}

template <int M, int N, int LD, class Op>
FORGE_DEVICE void reduce_rows(const float* src, float* dst) {
    constexpr int kParts = row_parts(M, N), kRows = pieces(M, kParts);
    const auto part = [&](int column, int p) {
        float x = Op::nothing();
#pragma unroll 8
        for (int i = p * kRows; i < min(M, (p + 1) * kRows); ++i) x = Op::of(x, src[i * LD + column]);
        return x;
    };
    if constexpr (kParts == 1) {
        each_column<N, 1>([&](int column, int p) { dst[column] = part(column, p); });
    } else {
        float* const parts = work();
        sync();
        each_column<N, kParts>([&](int column, int p) { parts[p * N + column] = part(column, p); });
        sync();
        each_column<N, 1>([&](int column, int) {
            float x = parts[column];
            for (int p = 1; p < kParts; ++p) x = Op::of(x, parts[p * N + column]);
            dst[column] = x;
        });
    }
}

/// The running sum of N contiguous values, by one warp: a lane has a stretch of them.
template <int N, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void cumsum_row(const float* src, float* dst) {
    constexpr int kStretch = pieces(N, kLanes);
    const int self = lane();
    const auto index = [&](int s) {
        const int n = self * kStretch + s;
        return REVERSE ? N - 1 - n : n;
    };
    const auto valid = [&](int s) { return self * kStretch + s < N; };
    float x[kStretch], total = 0.0f;
#pragma unroll
    for (int s = 0; s < kStretch; ++s) total += x[s] = valid(s) ? src[index(s)] : 0.0f;
    float before = total;  // becomes the sum of this stretch and all before it, then that of all before it
    for (int n = 1; n < kLanes; n *= 2) {
        const float other = __shfl_up_sync(kAllLanes, before, n);
        if (self >= n) before += other;
    }
    before = __shfl_up_sync(kAllLanes, before, 1);
    if (self == 0) before = 0.0f;
#pragma unroll
    for (int s = 0; s < kStretch; ++s) {
        const float after = before + x[s];
        if (valid(s)) dst[index(s)] = EXCLUSIVE ? before : after;
        before = after;
    }
}

}  // namespace detail

/// dst[i] = src[0] + … + src[i]; REVERSE: from the end; EXCLUSIVE: without src[i] itself.
template <int N, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void cumsum(const float* src, float* dst) {
    if (warp() == 0) detail::cumsum_row<N, REVERSE, EXCLUSIVE>(src, dst);
}

/// `cumsum` along axis 1, each row on its own.
template <int M, int N, int LDS, int LDD, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void cumsum_cols(const float* src, float* dst) {
    for (int i = warp(); i < M; i += kWarps) detail::cumsum_row<N, REVERSE, EXCLUSIVE>(src + i * LDS, dst + i * LDD);
}

/// `cumsum` along axis 0, each column on its own.
template <int M, int N, int LDS, int LDD, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void cumsum_rows(const float* src, float* dst) {
    constexpr int kParts = detail::row_parts(M, N), kRows = pieces(M, kParts);
    const auto row = [](int n) { return REVERSE ? M - 1 - n : n; };
    float* const sums = detail::work();
    if constexpr (kParts > 1) {
        sync();
        detail::each_column<N, kParts>([&](int column, int p) {
            float x = 0.0f;
#pragma unroll 8
            for (int n = p * kRows; n < min(M, (p + 1) * kRows); ++n) x += src[row(n) * LDS + column];
            sums[p * N + column] = x;
        });
        sync();
    }
    detail::each_column<N, kParts>([&](int column, int p) {
        float sum = 0.0f;
        for (int before = 0; before < p; ++before) sum += sums[before * N + column];
#pragma unroll 8
        for (int n = p * kRows; n < min(M, (p + 1) * kRows); ++n) {
            const float next = sum + src[row(n) * LDS + column];
            dst[row(n) * LDD + column] = EXCLUSIVE ? sum : next;
            sum = next;
        }
    });
}

/// dst[i] = src[0] * … * src[i] along axis 0: a thread has a column.
template <int M, int N, int LDS, int LDD>
FORGE_DEVICE void cumprod_rows(const float* src, float* dst) {
    detail::each_column<N, 1>([&](int column, int) {
        float product = 1.0f;
#pragma unroll 8
        for (int i = 0; i < M; ++i) dst[i * LDD + column] = product *= src[i * LDS + column];
    });
}

/// … along axis 1: a thread has a row.
template <int M, int N, int LDS, int LDD>
FORGE_DEVICE void cumprod_cols(const float* src, float* dst) {
    for (int i = thread(); i < M; i += kThreads) {
        float product = 1.0f;
        for (int j = 0; j < N; ++j) dst[i * LDD + j] = product *= src[i * LDS + j];
    }
}

/// h[i] = a[i] * h[i - 1] + x[i] along axis 0, from h[-1] = 0; a[0] does not matter. STEP_A: 0 if a row of a is a
/// number.
template <int M, int N, int LDA, int LDX, int LDD, int STEP_A = 1>
FORGE_DEVICE void linear_scan(const float* a, const float* x, float* dst) {
    constexpr int kParts = detail::row_parts(M, N), kRows = pieces(M, kParts);
    float* const factors = detail::work();
    float* const ends = factors + kThreads;
    if constexpr (kParts > 1) {  // what each part makes of the h before it: factor * h + end
        sync();
        detail::each_column<N, kParts>([&](int column, int p) {
            float factor = 1.0f, h = 0.0f;
#pragma unroll 8
            for (int i = p * kRows; i < min(M, (p + 1) * kRows); ++i) {
                const float decay = a[i * LDA + column * STEP_A];
                factor *= decay;
                h = (i == p * kRows ? 0.0f : decay * h) + x[i * LDX + column];
            }
            factors[p * N + column] = factor, ends[p * N + column] = h;
        });
        sync();
    }
    detail::each_column<N, kParts>([&](int column, int p) {
        float h = p > 0 ? ends[column] : 0.0f;
        for (int before = 1; before < p; ++before) h = factors[before * N + column] * h + ends[before * N + column];
#pragma unroll 8
        for (int i = p * kRows; i < min(M, (p + 1) * kRows); ++i) {
            h = (i == 0 ? 0.0f : a[i * LDA + column * STEP_A] * h) + x[i * LDX + column];
            dst[i * LDD + column] = h;
        }
    });
}

template <int N>
FORGE_DEVICE void linear_scan_vector(const float* a, const float* x, float* dst) {
    if (thread() > 0) return;
    float h = 0.0f;
    for (int i = 0; i < N; ++i) dst[i] = h = (i == 0 ? 0.0f : a[i] * h) + x[i];
}

/// The same, or, in REVERSE, h[i] = a[i + 1] * h[i + 1] + x[i] from h[N] = 0; EXCLUSIVE: the h that goes into element
/// i.
template <int N, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void linear_scan_vector(const float* a, const float* x, float* dst) {
    if (thread() > 0) return;
    float h = 0.0f;
    for (int n = 0; n < N; ++n) {
        const int i = REVERSE ? N - 1 - n : n;
        const float before = h;
        h = n == 0 ? x[i] : a[REVERSE ? i + 1 : i] * h + x[i];
        dst[i] = EXCLUSIVE ? before : h;
    }
}

/// Scans that are no linear_scan: a thread has a column. REVERSE: h[i] = a[i + 1] * h[i + 1] + x[i] along axis 0, from
/// h[M] = 0; EXCLUSIVE: the h that goes into each row.
template <int M, int N, int LDA, int LDX, int LDD, bool REVERSE, bool EXCLUSIVE>
FORGE_DEVICE void linear_scan_columns(const float* a, const float* x, float* dst) {
    detail::each_column<N, 1>([&](int column, int) {
        float h = 0.0f;
#pragma unroll 8
        for (int n = 0; n < M; ++n) {
            const int i = REVERSE ? M - 1 - n : n;
            const float before = h;
            h = n == 0 ? x[i * LDX + column] : a[(REVERSE ? i + 1 : i) * LDA + column] * h + x[i * LDX + column];
            dst[i * LDD + column] = EXCLUSIVE ? before : h;
        }
    });
}
template <int M, int N, int LDA, int LDX, int LDD, bool EXCLUSIVE>
FORGE_DEVICE void linear_scan_forward(const float* a, const float* x, float* dst) {
    linear_scan_columns<M, N, LDA, LDX, LDD, false, EXCLUSIVE>(a, x, dst);
}
template <int M, int N, int LDA, int LDX, int LDD, bool EXCLUSIVE>
FORGE_DEVICE void linear_scan_reverse(const float* a, const float* x, float* dst) {
    linear_scan_columns<M, N, LDA, LDX, LDD, true, EXCLUSIVE>(a, x, dst);
}

/// Sum over axis 0: [M, N] to [N].
template <int M, int N, int LD>
FORGE_DEVICE void sum_rows(const float* src, float* dst) {
    detail::reduce_rows<M, N, LD, detail::Plus>(src, dst);
}

/// Maximum over axis 0: [M, N] to [N].
template <int M, int N, int LD>
FORGE_DEVICE void amax_rows(const float* src, float* dst) {
    detail::reduce_rows<M, N, LD, detail::Larger>(src, dst);
}

/// Sum of N contiguous values; every thread has it.
template <int N>
FORGE_DEVICE float sum(const float* src) {
    return detail::reduce_row<N, detail::Plus>(src);
}

/// Maximum of N contiguous values; every thread has it.
template <int N>
FORGE_DEVICE float amax(const float* src) {
    return detail::reduce_row<N, detail::Larger>(src);
}

/// Sum over axis 1: [M, N] to [M].
template <int M, int N, int LD>
FORGE_DEVICE void sum_cols(const float* src, float* dst) {
    for (int i = warp(); i < M; i += kWarps) {
        const float x = sum<N>(src + i * LD);
        if (lane() == 0) dst[i] = x;
    }
}

/// Maximum over axis 1: [M, N] to [M].
template <int M, int N, int LD>
FORGE_DEVICE void amax_cols(const float* src, float* dst) {
    for (int i = warp(); i < M; i += kWarps) {
        const float x = amax<N>(src + i * LD);
        if (lane() == 0) dst[i] = x;
    }
}

}  // namespace forge::cuda
