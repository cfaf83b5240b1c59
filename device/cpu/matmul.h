/// Matrix product of tiles: c[M, N] = a·b, c += a·b or c -= a·b, in fp32; or on top of another tile, times a number or
/// a number per row: c = scale x + a·b, as states take up a chunk.
///
/// A(i, k) = a[i * AI + k * AK], so a transposed left operand costs nothing; b [K, N] and c [M, N]
/// are row-major with strides LDB and LDC. Columns go by whole vectors: b is read, and c written,
/// up to round_up(N, kWidth). `TRI` states a triangle, so that the work outside it is skipped by
/// the register block. Operands do not overlap the result. One product, one thread: no packing and
/// no scratch memory.
#pragma once

#include <type_traits>

#include "vec.h"

namespace forge::cpu {

enum class Acc { Set, Add, Sub };

/// OutLower: only c(i, j) with j <= i + DIAG is wanted; the rest of c is unspecified.
/// ALower: A(i, k) = 0 for k > i + DIAG. AUpper: A(i, k) = 0 for k < i + DIAG.
enum class Tri { None, OutLower, ALower, AUpper };

/// What a product is added to: the result itself, or rows of LD floats, each times scale[r * STEP]; STEP -1: as they
/// are. `x` may be the result.
struct InPlace {};
template <int LD, int STEP>
struct Onto {
    const float* x;
    const float* scale;

    FORGE_INLINE Onto at(int row, int column) const {
        return {x + row * LD + column, STEP < 0 ? scale : scale + row * STEP};
    }
    FORGE_INLINE vec load_row(int r, int column) const {
        const vec row = load(x + r * LD + column);
        return STEP < 0 ? row : broadcast(scale[r * STEP]) * row;
    }
};

namespace detail {

constexpr int min(int a, int b) { return a < b ? a : b; }
constexpr int max(int a, int b) { return a > b ? a : b; }
constexpr int pieces(int n, int size) { return (n + size - 1) / size; }

// The register block is R rows by V vectors of accumulators, beside V vectors of b and one
// broadcast of a. Wide blocks load least per FMA; a short matrix takes wider ones, to have enough
// FMAs in flight.
constexpr int block_vectors(int m) { return kRegisters == 32 ? (m <= 3 ? 8 : 4) : (m <= 2 ? 6 : m <= 4 ? 3 : 2); }
constexpr int block_rows(int v) { return max(1, min(12, kRegisters == 32 ? 24 / v : 12 / v)); }

// The rows of b that stay in the L1 cache while all rows of a pass over them.
constexpr int kBlockDepth = 64;

// sum[R, V] = sum over k in [0, depth) of a(r, k) b(k, v).
template <int R, int V, int AI, int AK, int LDB>
FORGE_INLINE void multiply(const float* a, const float* b, int depth, vec (&sum)[R][V]) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[r][v] = vec{};
    for (int k = 0; k < depth; ++k, a += AK, b += LDB) {
        vec row[V];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) row[v] = load(b + v * kWidth);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const vec left = broadcast(a[r * AI]);
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) sum[r][v] += left * row[v];
        }
    }
}

// c[R, V] (op)= the block's sums; `more` continues a Set begun by an earlier stretch of k.
template <int R, int V, int AI, int AK, int LDB, int LDC, Acc ACC>
__attribute__((noinline)) void matmul_block(const float* a, const float* b, float* c, int depth, bool more) {
    vec sum[R][V];
    multiply<R, V, AI, AK, LDB>(a, b, depth, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            float* out = c + r * LDC + v * kWidth;
            if (ACC == Acc::Sub) {
                store(out, load(out) - sum[r][v]);
            } else if (ACC == Acc::Add || more) {
                store(out, load(out) + sum[r][v]);
            } else {
                store(out, sum[r][v]);
            }
        }
    }
}

// c[R, V] = what the base has there, + or - the block's sums.
template <int R, int V, int AI, int AK, int LDB, int LDC, Acc ACC, class Base>
__attribute__((noinline)) void matmul_block_onto(const float* a, const float* b, float* c, int depth, Base base) {
    vec sum[R][V];
    multiply<R, V, AI, AK, LDB>(a, b, depth, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
            const vec row = base.load_row(r, v * kWidth);
            store(c + r * LDC + v * kWidth, ACC == Acc::Sub ? row - sum[r][v] : row + sum[r][v]);
        }
    }
}

// As matmul_block for the first `count` of V vectors: what a row block needs of a lower triangle.
template <int R, int V, int AI, int AK, int LDB, int LDC, Acc ACC>
FORGE_INLINE void matmul_block_upto(int count, const float* a, const float* b, float* c, int depth, bool more) {
    if constexpr (V > 1) {
        if (count < V) return matmul_block_upto<R, V - 1, AI, AK, LDB, LDC, ACC>(count, a, b, c, depth, more);
    }
    if (count > 0) matmul_block<R, V, AI, AK, LDB, LDC, ACC>(a, b, c, depth, more);
}

// The walk over the blocks of one product.
template <int M, int N, int K, int AI, int AK, int LDB, int LDC, Acc ACC, Tri TRI, int DIAG, class Base = InPlace>
struct Product {
    static constexpr bool kInPlace = std::is_same_v<Base, InPlace>;

    // Panels of columns and blocks of rows are as even as their number allows: none is too thin to
    // fill the pipeline.
    static constexpr int kPanels = pieces(vectors(N), block_vectors(M));
    static constexpr int kVectors = pieces(vectors(N), kPanels);
    static constexpr int kWide = vectors(N) - kPanels * (kVectors - 1);  // panels of kVectors; the rest have one less
    static constexpr int kDepth = pieces(K, pieces(K, kBlockDepth));

    const float* a;
    const float* b;
    float* c;
    Base base{};

    template <int R, int V>
    FORGE_INLINE void block(int i, int j, int k0, int k1) const {
        const bool more = k0 > 0;
        if (TRI == Tri::ALower) k1 = min(k1, i + R + DIAG);
        if (TRI == Tri::AUpper) k0 = max(k0, i + DIAG);
        if (k0 >= k1) {
            if (more || (ACC != Acc::Set && kInPlace)) return;
            k1 = k0 = 0;  // an empty sum is stored all the same
        }
        const float* left = a + int64_t(i) * AI + int64_t(k0) * AK;
        const float* right = b + k0 * LDB + j;
        float* out = c + i * LDC + j;
        if constexpr (!kInPlace) {
            if (!more) return matmul_block_onto<R, V, AI, AK, LDB, LDC, ACC>(left, right, out, k1 - k0, base.at(i, j));
        }
        if constexpr (TRI == Tri::OutLower) {
            const int wanted = i + R + DIAG - j;  // columns of this panel up to the diagonal in the last row
            const int count = wanted > 0 ? vectors(wanted) : 0;
            matmul_block_upto<R, V, AI, AK, LDB, LDC, ACC>(count, left, right, out, k1 - k0, more);
        } else {
            matmul_block<R, V, AI, AK, LDB, LDC, ACC>(left, right, out, k1 - k0, more);
        }
    }

    template <int V>
    FORGE_INLINE void panel(int j) const {
        constexpr int kBlocks = pieces(M, block_rows(V));
        constexpr int kRows = pieces(M, kBlocks);
        constexpr int kTall = M - kBlocks * (kRows - 1);
        for (int k = 0; k < K; k += kDepth) {
            int i = 0;
            for (; i < kTall * kRows; i += kRows) block<kRows, V>(i, j, k, min(K, k + kDepth));
            if constexpr (kRows > 1) {
                for (; i < M; i += kRows - 1) block<kRows - 1, V>(i, j, k, min(K, k + kDepth));
            }
        }
    }

    FORGE_INLINE void run() const {
        int j = 0;
        for (; j < kWide * kVectors * kWidth; j += kVectors * kWidth) panel<kVectors>(j);
        if constexpr (kVectors > 1) {
            for (; j < N; j += (kVectors - 1) * kWidth) panel<kVectors - 1>(j);
        }
    }
};

}  // namespace detail

template <int M, int N, int K, int AI, int AK, int LDB, int LDC, Acc ACC = Acc::Set, Tri TRI = Tri::None, int DIAG = 0>
__attribute__((noinline)) void matmul(const float* a, const float* b, float* c) {
    detail::Product<M, N, K, AI, AK, LDB, LDC, ACC, TRI, DIAG>{a, b, c}.run();
}

template <int M, int N, int K, int AI, int AK, int LDB, int LDC, Acc ACC, int LDX, int STEP, Tri TRI = Tri::None,
          int DIAG = 0>
__attribute__((noinline)) void matmul_onto(const float* a, const float* b, float* c, const float* x,
                                           const float* scale) {
    using Base = Onto<LDX, STEP>;
    detail::Product<M, N, K, AI, AK, LDB, LDC, ACC, TRI, DIAG, Base>{a, b, c, {x, scale}}.run();
}

}  // namespace forge::cpu
