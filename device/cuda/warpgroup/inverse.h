/// Inverse of a unit lower-triangular matrix of 64 x 64 in the registers of a warp group, as accurate as fp32: 1 on the
/// diagonal of the result, 0 above. Only the entries below the diagonal are read.
///
/// Each warp inverts its own block of 16 by substitution; then neighbours merge, 16 to 32 to 64:
///     [A 0; B C]⁻¹ = [A⁻¹ 0; -C⁻¹ B A⁻¹ C⁻¹].
/// A warp has some columns of B A⁻¹, so it needs no other for the product with C⁻¹. No pivoting and no test of
/// conditioning.
#pragma once

#include "../portable/matmul.h"
#include "fragment.h"

namespace forge::cuda {

namespace detail {

constexpr int kInverseRow = 72;  ///< floats from row to row: two columns of each of four rows lie in 16 different banks

/// Two tiles of 64 x 64 in shared memory: the matrix, and its inverse as far as it is known.
struct InverseTiles {
    static constexpr int kTile = 64 * kInverseRow;
    float *matrix, *inverse;
    FORGE_DEVICE explicit InverseTiles(float* work) : matrix(work), inverse(work + kTile) {}
    FORGE_DEVICE static int place(int row, int col) { return row * kInverseRow + col; }
};

/// This warp's rows left of its own block go to the matrix, the block's transpose to where its inverse will lie.
FORGE_DEVICE void spread_rows(const InverseTiles& tiles, const Fragment<64, 64>& a, int warp) {
    const int own = warp * 16;
    float* const transposed = tiles.inverse + InverseTiles::place(own, own);
    each_lower([&](const Spot& s) {
        const pair x = a.at(s);
        const int block = s.index / 8;
        if (block < warp) {
            store_pair(tiles.matrix + InverseTiles::place(s.i, s.j), x);
        } else {
            transposed[InverseTiles::place(s.j % 16, s.i % 16)] = x.x[0];
            transposed[InverseTiles::place(s.j % 16 + 1, s.i % 16)] = x.x[1];
        }
    });
}

/// The inverse of a block of 16 in the place of its transpose, by one warp: a lane has a column, and the lane 16 after
/// it the same. As soon as an entry is known it leaves all rows below.
FORGE_DEVICE void invert_own_block(float* block) {
    constexpr int kRows = 16;
    const int column = lane() % kRows;
    float x[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = i == column ? 1.0f : 0.0f;
    __syncwarp();
#pragma unroll
    for (int j = 0; j + 1 < kRows; ++j)
#pragma unroll
        for (int i = (j + 1) / kWidth * kWidth; i < kRows; i += kWidth) {
            const vec a = load(block + j * kInverseRow + i);
#pragma unroll
            for (int l = 0; l < kWidth; ++l)
                if (i + l > j) x[i + l] -= a.x[l] * x[j];
        }
    __syncwarp();
    if (lane() >= kRows) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) block[i * kInverseRow + column] = x[i];
}

/// A warp's 16 ROWS x 8 numbers of a product: a b, both in shared memory, from three products of tf32 parts.
template <int ROWS>
struct SlabProduct {
    float large[ROWS][4] = {}, small[ROWS][4] = {};

    /// Adds what 8 columns of a's ROWS blocks of 16 rows from FROM on, and 8 rows of b, give.
    template <int FROM>
    FORGE_DEVICE void add(const float* a, const float* b) {
        const int g = lane() / 4, t = lane() % 4;
        const Parts<Precision::Float> right[] = {Parts<Precision::Float>(b[2 * t * kInverseRow + g]),
                                                 Parts<Precision::Float>(b[(2 * t + 1) * kInverseRow + g])};
        const unsigned right_high[] = {right[0].high, right[1].high}, right_low[] = {right[0].low, right[1].low};
#pragma unroll
        for (int r = FROM; r < ROWS; ++r) {
            const pair upper = load_pair(a + (16 * r + g) * kInverseRow + 2 * t),
                       lower = load_pair(a + (16 * r + 8 + g) * kInverseRow + 2 * t);
            Parts<Precision::Float> left[] = {Parts<Precision::Float>(upper.x[0]), Parts<Precision::Float>(lower.x[0]),
                                              Parts<Precision::Float>(upper.x[1]), Parts<Precision::Float>(lower.x[1])};
            const unsigned high[] = {left[0].high, left[1].high, left[2].high, left[3].high},
                           low[] = {left[0].low, left[1].low, left[2].low, left[3].low};
            ptx::mma_m16n8k8_tf32(small[r], low, right_high);
            ptx::mma_m16n8k8_tf32(large[r], high, right_high);
            ptx::mma_m16n8k8_tf32(small[r], high, right_low);
        }
    }

    FORGE_DEVICE void put(float* slab, float sign) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                store_pair(
                    slab + (16 * r + 8 * h + lane() / 4) * kInverseRow + lane() % 4 * 2,
                    {{sign * (large[r][2 * h] + small[r][2 * h]), sign * (large[r][2 * h + 1] + small[r][2 * h + 1])}});
    }
};

/// Columns [col, col + 8) of the inverse's lower left part, where it was known in two blocks of H on the diagonal from
/// `at` on.
template <int H>
FORGE_DEVICE void merge_slab(const InverseTiles& tiles, int at, int col) {
    constexpr int kRows = H / 16;
    const float* const b = tiles.matrix + InverseTiles::place(at + H, at);
    const float* const upper = tiles.inverse + InverseTiles::place(at, at + col);
    const float* const lower = tiles.inverse + InverseTiles::place(at + H, at + H);
    float* const slab = tiles.inverse + InverseTiles::place(at + H, at + col);
    SlabProduct<kRows> first, second;
#pragma unroll
    for (int k = 0; k < H; k += 8)
        if (k >= col / 16 * 16) first.template add<0>(b + k, upper + k * kInverseRow);  // above, the inverse is 0
    first.put(slab, 1.0f);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < H; k += 8) {
        if (k < 16) second.template add<0>(lower + k, slab + k * kInverseRow);
        else second.template add<kRows - 1>(lower + k, slab + k * kInverseRow);
    }
    __syncwarp();
    second.put(slab, -1.0f);
}

}  // namespace detail

/// `work`: kInverseFloats in shared memory, 16-byte aligned.
constexpr int kInverseFloats = 2 * detail::InverseTiles::kTile;
FORGE_DEVICE Fragment<64, 64> unit_lower_inverse(const Fragment<64, 64>& a, float* work) {
    using namespace detail;
    const InverseTiles tiles(work);
    const int w = uniform(warp());
    spread_rows(tiles, a, w);
    invert_own_block(tiles.inverse + InverseTiles::place(w * 16, w * 16));
    sync();
    merge_slab<16>(tiles, w / 2 * 32, w % 2 * 8);
    sync();
    merge_slab<32>(tiles, 0, w * 8);
    sync();
    Fragment<64, 64> x = {};
    each_lower([&](const Spot& s) { x.put(s, load_pair(tiles.inverse + InverseTiles::place(s.i, s.j))); });
    return x;
}

}  // namespace forge::cuda
