/// Inverse of a unit lower-triangular tile, as accurate as fp32: 1 on the diagonal of the result, 0 above.
///
/// Only the entries of `a` below the diagonal are read; `a` and `out` do not overlap. Blocks of 16 are inverted by
/// forward substitution, a warp each; then neighbours merge, 16 to 32 to 64, all pairs of a size at once:
///     [A 0; B C]⁻¹ = [A⁻¹ 0; -C⁻¹ B A⁻¹ C⁻¹].
/// No pivoting and no test of conditioning.
#pragma once

#include "product.h"

namespace forge::cuda {

namespace detail {

constexpr int kInverseBlock = 16;

/// The inverse of one block, by one warp: a lane has a column. As soon as an entry is known it leaves all rows below.
template <int R, int LDS, int LDD>
FORGE_DEVICE void invert_block(const float* a, float* out) {
    const int column = lane();
    if (column >= R) return;
    float x[R];
#pragma unroll
    for (int i = 0; i < R; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < R; ++j)
#pragma unroll
        for (int i = j + 1; i < R; ++i) x[i] -= a[i * LDS + j] * x[j];
#pragma unroll
    for (int i = 0; i < R; ++i) out[i * LDD + column] = x[i];
}

/// Merges the inverses of H rows with those of the L rows after them, by WARPS warps of which this is number `w`. The
/// product B A⁻¹ passes through its place in the result.
template <int H, int L, int LDS, int LDD, int WARPS>
struct Merge {
    static constexpr int kDown = warps_down(pieces(L, 16), pieces(H, 8), WARPS), kAcross = WARPS / kDown;
    static constexpr int kRows = pieces(pieces(L, 16), kDown), kCols = pieces(pieces(H, 8), kAcross);
    const float* a;
    float* out;
    int row, col;
    Product<L, H, L, LDD, 1, LDD, 1, Precision::Float, kRows, kCols> result;

    FORGE_DEVICE Merge(const float* a_, float* out_, int w)
        : a(a_), out(out_), row(w % kDown * kRows * 16), col(w / kDown * kCols * 8) {}

    FORGE_DEVICE void first_product() {
        Product<L, H, H, LDS, 1, LDD, 1, Precision::Float, kRows, kCols> product;
        product.run(a + H * LDS, out, row, col, 0, H);
        product.each(row, col, L, H,
                     [&](int i, int j, float x, float y) { put<Acc::Set>(out + (H + i) * LDD + j, x, y); });
    }
    FORGE_DEVICE void second_product() { result.run(out + H * LDD + H, out + H * LDD, row, col, 0, L); }
    FORGE_DEVICE void finish() const {
        result.each(row, col, L, H,
                    [&](int i, int j, float x, float y) { put<Acc::Set>(out + (H + i) * LDD + j, -x, -y); });
    }
};

/// Whole pairs of H and H rows, as many at once as there are warps for, then a last pair whose second part is shorter.
template <int N, int H, int LDS, int LDD>
FORGE_DEVICE void merge_all(const float* a, float* out) {
    if constexpr (H < N) {
        constexpr int kPairs = N / (2 * H), kTeams = min(kWarps, max(1, kPairs)), kRest = N % (2 * H);
        for (int pair = 0; pair < kPairs; pair += kTeams) {
            const int team = warp() % kTeams, at = (pair + team) * 2 * H;
            const bool busy = pair + team < kPairs;
            Merge<H, H, LDS, LDD, kWarps / kTeams> merge(a + at * (LDS + 1), out + at * (LDD + 1), warp() / kTeams);
            if (busy) merge.first_product();
            sync();
            if (busy) merge.second_product();
            sync();
            if (busy) merge.finish();
        }
        if constexpr (kRest > H) {
            constexpr int kAt = kPairs * 2 * H;
            Merge<H, kRest - H, LDS, LDD, kWarps> merge(a + kAt * (LDS + 1), out + kAt * (LDD + 1), warp());
            merge.first_product();
            sync();
            merge.second_product();
            sync();
            merge.finish();
        }
        sync();
        merge_all<N, 2 * H, LDS, LDD>(a, out);
    }
}

}  // namespace detail

template <int N, int LDS, int LDD>
FORGE_DEVICE void unit_lower_inverse(const float* a, float* out) {
    using namespace detail;
    constexpr int B = kInverseBlock, kBlocks = N / B;
    for (int block = warp(); block < kBlocks; block += kWarps)
        invert_block<B, LDS, LDD>(a + block * B * (LDS + 1), out + block * B * (LDD + 1));
    if constexpr (N % B > 0) {
        if (warp() == kBlocks % kWarps)
            invert_block<N % B, LDS, LDD>(a + kBlocks * B * (LDS + 1), out + kBlocks * B * (LDD + 1));
    }
    for (int n = thread(); n < N * vectors(N); n += kThreads) {
        const int i = n / vectors(N), j = n % vectors(N) * kWidth;
        if (j / B > i / B) store(out + i * LDD + j, broadcast(0.0f));
    }
    sync();
    merge_all<N, B, LDS, LDD>(a, out);
}

}  // namespace forge::cuda
