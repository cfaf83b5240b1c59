/// Loops over the rows of token tensors that stay in memory: where rows lie, one vector of one row,
/// one row of a scan.
///
/// Element (i, j) of a tensor of M rows of N goes straight from memory into registers, and back.
/// What cannot be read so (a last chunk with fewer rows, strided columns, widths that are no whole
/// vectors) is copied first; the loop is the same.
#pragma once

#include "io.h"

namespace forge::cpu {

/// Row i at `at + i * step`.
template <class T>
struct Rows {
    T* at;
    int64_t step;
    bool past_caches = false;  ///< stores need not stay in the caches
};

namespace detail {

/// Tensors of so many bytes or more do not stay in the caches until they are read.
constexpr int64_t kPastCaches = int64_t{16} << 20;
/// Rows are prefetched so far ahead: rows of a head lie apart, and hardware prefetches only within
/// a page.
constexpr int kRowsAhead = 4;

/// A store around the caches, where there is one for vectors of this size; p is aligned to the
/// size.
template <class Raw, class T>
FORGE_INLINE void store_past(T* p, Raw raw) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (sizeof(Raw) == 64) return __builtin_ia32_movntps512(reinterpret_cast<float*>(p), (vec)raw);
#endif
#if defined(__AVX__) && !defined(__clang__)
    typedef long long Quads __attribute__((vector_size(32)));
    if constexpr (sizeof(Raw) == 32) return __builtin_ia32_movntdq256(reinterpret_cast<Quads*>(p), (Quads)raw);
#endif
    std::memcpy(p, &raw, sizeof raw);
}

template <int M, int N>
inline bool whole(int64_t col_stride, int rows) {
    return N % kWidth == 0 && rows == M && col_stride == 1;
}

template <int N, class T>
inline void copy_row(T* dst, int64_t dst_stride, const T* src, int64_t src_stride) {
    if (dst_stride == 1 && src_stride == 1) {
        std::memcpy(dst, src, N * sizeof(T));
        return;
    }
    for (int c = 0; c < N; ++c) dst[c * dst_stride] = src[c * src_stride];
}

}  // namespace detail

/// `rows` rows of N elements where they lie, or a copy in `tile` with `pad` in the rows up to M.
template <int M, int N, int LD, class T>
inline Rows<const T> rows_to_read(float* tile, const T* src, int64_t row_stride, int64_t col_stride, int rows,
                                  float pad) {
    if (detail::whole<M, N>(col_stride, rows)) return {src, row_stride};
    T* const copy = reinterpret_cast<T*>(tile);
    T padding;
    store_as(&padding, broadcast(pad), 1);
    for (int r = 0; r < M; ++r) {
        if (r < rows) detail::copy_row<N>(copy + r * LD, 1, src + r * row_stride, col_stride);
        else
            for (int c = 0; c < N; ++c) copy[r * LD + c] = padding;
    }
    return {copy, LD};
}

/// Where a loop may write M whole rows: the tensor, or `tile`, from which `store_rows` takes them.
/// `tokens`: of the sequence.
template <int M, int N, int LD, class T>
inline Rows<T> rows_to_write(float* tile, T* dst, int64_t row_stride, int64_t col_stride, int rows, int64_t tokens) {
    if (!detail::whole<M, N>(col_stride, rows)) return {reinterpret_cast<T*>(tile), LD};
    constexpr uint64_t kBytes = kWidth * sizeof(T);
    const bool aligned = (reinterpret_cast<uint64_t>(dst) | uint64_t(row_stride) * sizeof(T)) % kBytes == 0;
    return {dst, row_stride, aligned && tokens * row_stride * int64_t{sizeof(T)} >= detail::kPastCaches};
}

template <int N, int LD, class T>
inline void store_rows(Rows<T> from, const float* tile, T* dst, int64_t row_stride, int64_t col_stride, int rows) {
#if defined(__SSE2__)
    if (from.past_caches) __builtin_ia32_sfence();
#endif
    if (static_cast<const void*>(from.at) != tile) return;
    for (int r = 0; r < rows; ++r) detail::copy_row<N>(dst + r * row_stride, col_stride, from.at + r * LD, 1);
}

template <class T>
FORGE_INLINE vec load_row(const Rows<const T>& from, int i, int j) {
    const T* const p = from.at + i * from.step + j;
    __builtin_prefetch(p + detail::kRowsAhead * from.step);
    return load_as(p);
}

template <class T>
FORGE_INLINE void store_row(const Rows<T>& to, int i, int j, vec x) {
    T* const p = to.at + i * to.step + j;
    if (to.past_caches) detail::store_past(p, detail::from_float(x, T{}));
    else store_as(p, x);
}

/// One row of a running sum, from the row before.
FORGE_INLINE vec sum_row(vec x, const float* before, bool first) { return first ? x : load(before) + x; }

/// One row of h[i] = a[i] * h[i - 1] + x[i]; the first is x.
FORGE_INLINE vec linear_scan_row(vec a, vec x, const float* before, bool first) {
    return first ? x : a * load(before) + x;
}

/// The same from h[-1] = h0.
FORGE_INLINE vec linear_scan_from_row(vec a, vec x, vec h0, const float* before, bool first) {
    return a * (first ? h0 : load(before)) + x;
}

}  // namespace forge::cpu
