/// Inverse of a unit lower-triangular matrix of 64 x 64 in the registers of a warp group, as accurate as fp32: 1 on the
/// diagonal of the result, 0 above. Only the entries below the diagonal are read.
///
/// Each warp inverts two blocks of 8 by substitution; then neighbours merge, 8 to 16 to 32 to 64:
///     [A 0; B C]⁻¹ = [A⁻¹ 0; -C⁻¹ B A⁻¹ C⁻¹].
/// Every product is of a block in shared memory and the transpose of one in registers, which a matrix instruction takes
/// as a fragment holds it: (B A⁻¹)ᵀ = A⁻ᵀ Bᵀ with B, and with that result C⁻¹ (B A⁻¹). So neither is stored. No
/// pivoting and no test of conditioning.
#pragma once

#include "../portable/product.h"
#include "fragment.h"

namespace forge::cuda {

namespace detail {

/// 16 x 16 numbers in a warp's registers, as a fragment has them: with g = lane / 4 and t = lane % 4, numbers 4 k + 2 h
/// and the next are row 8 h + g, columns 8 k + 2 t and the next.
struct WarpBlock {
    float x[8];
};

/// Block `n` of those that a warp has of a fragment.
FORGE_DEVICE WarpBlock block_of(const Fragment<64, 64>& a, int n) {
    WarpBlock block;
#pragma unroll
    for (int b = 0; b < 4; ++b)
        if (b == n)
#pragma unroll
            for (int i = 0; i < 8; ++i) block.x[i] = a.x[8 * b + i];
    return block;
}

/// Of 16 x 16 numbers in shared memory. Pairs along 4 rows, and numbers down 8 columns of every other row, lie in 32
/// banks: those are what matrix instructions take.
FORGE_DEVICE int place_in_block(int row, int col) { return (row ^ (row >> 2 & 1)) * 16 + (col ^ (row & 2) << 2); }
/// Where a lane's numbers 4 k + 2 h of a block and the next lie …
FORGE_DEVICE int pair_in_block(int k, int h) { return (place_in_block(lane() / 4, lane() % 4 * 2) ^ 8 * k) + 128 * h; }
/// … and number 4 k + 2 h + e of its transpose.
FORGE_DEVICE int transposed_in_block(int k, int h, int e) {
    return (place_in_block(lane() % 4 * 2, lane() / 4) ^ 16 * e ^ 8 * h) + 128 * k;
}

/// f(number, address) for each pair of a block's numbers.
template <class F>
FORGE_DEVICE void each_pair(float* block, F f) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) f(n, block + pair_in_block(n / 4, n / 2 % 2));
}
FORGE_DEVICE WarpBlock load_block(const float* block) {
    WarpBlock b;
    each_pair(const_cast<float*>(block), [&](int n, const float* p) {
        const pair x = load_pair(p);
        b.x[n] = x.x[0], b.x[n + 1] = x.x[1];
    });
    return b;
}
FORGE_DEVICE void store_block(float* block, const WarpBlock& b) {
    each_pair(block, [&](int n, float* p) { store_pair(p, {{b.x[n], b.x[n + 1]}}); });
}

/// 16 x 8 numbers of a product, from three products of tf32 parts.
struct SplitSum {
    float large[4] = {}, small[4] = {};

    /// Numbers of a first operand of 16 x 8, in the instruction's order, and of a second one of 8 x 8.
    FORGE_DEVICE void add(const Parts<Precision::Float> (&left)[4], float right_first, float right_second) {
        const Parts<Precision::Float> right[] = {Parts<Precision::Float>(right_first),
                                                 Parts<Precision::Float>(right_second)};
        const unsigned high[] = {left[0].high, left[1].high, left[2].high, left[3].high},
                       low[] = {left[0].low, left[1].low, left[2].low, left[3].low},
                       right_high[] = {right[0].high, right[1].high}, right_low[] = {right[0].low, right[1].low};
        ptx::mma_m16n8k8_tf32(small, low, right_high);
        ptx::mma_m16n8k8_tf32(large, high, right_high);
        ptx::mma_m16n8k8_tf32(small, high, right_low);
    }
    FORGE_DEVICE float total(int n) const { return large[n] + small[n]; }
};

enum class Take { Itself, Transpose };
/// What of a block is zeros: nothing, or what lies right of its first 8 rows.
enum class Shape { Full, Lower };

/// A sum of products of blocks in shared memory, or their transposes, and the transposes of blocks in registers.
struct BlockSum {
    SplitSum columns[2];  ///< eight each

    template <Take TAKE, Shape SHAPE>
    FORGE_DEVICE void add(const float* block, const WarpBlock& f) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            float x[2][2] = {};  // row 8 h + g, column 8 k + 2 t + e
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (SHAPE == Shape::Lower && (TAKE == Take::Itself ? h < k : k < h)) continue;
                if constexpr (TAKE == Take::Itself) {
                    const pair p = load_pair(block + pair_in_block(k, h));
                    x[h][0] = p.x[0], x[h][1] = p.x[1];
                } else {
                    for (int e = 0; e < 2; ++e) x[h][e] = block[transposed_in_block(k, h, e)];
                }
            }
            const Parts<Precision::Float> left[4] = {Parts<Precision::Float>(x[0][0]), Parts<Precision::Float>(x[1][0]),
                                                     Parts<Precision::Float>(x[0][1]),
                                                     Parts<Precision::Float>(x[1][1])};
#pragma unroll
            for (int n = 0; n < 2; ++n) columns[n].add(left, f.x[4 * k + 2 * n], f.x[4 * k + 2 * n + 1]);
        }
    }
    FORGE_DEVICE WarpBlock total(float sign) const {
        WarpBlock b;
#pragma unroll
        for (int n = 0; n < 8; ++n) b.x[n] = sign * columns[n / 4].total(n % 4);
        return b;
    }
};

/// The inverses of the two blocks of 8 on a block's diagonal, to their places in `to`: a lane has a column, of the
/// first or the second. As soon as an entry is known it leaves all rows below.
FORGE_DEVICE void invert_eights(const WarpBlock& a, float* to) {
    constexpr int kRows = 8, kStride = 12, kSecond = 112;  // of their transposes, which lie in `to` meanwhile
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        float* const row = to + (lane() % 4 * 2 + e) * kStride + lane() / 4;
        row[0] = a.x[e], row[kSecond] = a.x[6 + e];
    }
    const int column = lane() % kRows, second = lane() / kRows % 2;
    float x[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = i == column ? 1.0f : 0.0f;
    __syncwarp();
#pragma unroll
    for (int j = 0; j + 1 < kRows; ++j)
#pragma unroll
        for (int i = (j + 1) / kWidth * kWidth; i < kRows; i += kWidth) {
            const vec below = load(to + second * kSecond + j * kStride + i);
#pragma unroll
            for (int l = 0; l < kWidth; ++l)
                if (i + l > j) x[i + l] -= below.x[l] * x[j];
        }
    __syncwarp();
    if (lane() >= 2 * kRows) return;
#pragma unroll
    for (int i = 0; i < kRows; ++i) to[(place_in_block(i, column) ^ 8 * second) + 128 * second] = x[i];
}

/// What lies below the first of these and left of the second.
FORGE_DEVICE void join_eights(const WarpBlock& a, float* to) {
    const Parts<Precision::Float> zero(0.0f),
        first[4] = {Parts<Precision::Float>(to[transposed_in_block(0, 0, 0)]), zero,
                    Parts<Precision::Float>(to[transposed_in_block(0, 0, 1)]), zero};
    SplitSum product, joined;
    product.add(first, a.x[2], a.x[3]);
    const pair lower = load_pair(to + pair_in_block(1, 1));
    const Parts<Precision::Float> second[4] = {Parts<Precision::Float>(lower.x[0]), zero,
                                               Parts<Precision::Float>(lower.x[1]), zero};
    joined.add(second, product.total(0), product.total(1));
    store_pair(to + pair_in_block(0, 1), {{-joined.total(0), -joined.total(1)}});
}

/// Blocks of the inverse in shared memory.
struct InverseBlocks {
    static constexpr int kFloats = 256, kCount = 12;
    float* data;

    FORGE_DEVICE float* at(int n) const { return data + n * kFloats; }
    FORGE_DEVICE float* diagonal(int n) const { return at(n); }
    /// Left of diagonal block 2 n + 1.
    FORGE_DEVICE float* beside(int n) const { return at(4 + n); }
    /// Row r and column c of the lower left quarter; of row 1 one addend, the other is `rest`.
    FORGE_DEVICE float* quarter(int r, int c) const { return at(6 + 2 * r + c); }
    FORGE_DEVICE float* rest(int c) const { return at(10 + c); }
};

/// Blocks of 16 to blocks of 32, by the warps that have what is left of the second ones.
FORGE_DEVICE void join_sixteens(const InverseBlocks& blocks, const WarpBlock& rows, int n) {
    BlockSum product, joined;
    product.add<Take::Transpose, Shape::Lower>(blocks.diagonal(2 * n), rows);
    joined.add<Take::Itself, Shape::Lower>(blocks.diagonal(2 * n + 1), product.total(1.0f));
    store_block(blocks.beside(n), joined.total(-1.0f));
}

/// Blocks of 32 to one of 64: each warp multiplies one of the two rows of blocks by one of two columns. The first
/// column has most to do, and is of the warps that have these rows; the other warps find the block that they need in
/// their result's place.
FORGE_DEVICE void join_halves(const InverseBlocks& blocks, const Fragment<64, 64>& a, int warp) {
    const int r = warp % 2, c = warp < 2 ? 1 : 0;
    BlockSum sum;
    if (c == 0) {
        sum.add<Take::Transpose, Shape::Lower>(blocks.diagonal(0), block_of(a, 0));
        sum.add<Take::Transpose, Shape::Full>(blocks.beside(0), block_of(a, 1));
    } else {
        const WarpBlock rows = load_block(blocks.quarter(r, c));
        sum.add<Take::Transpose, Shape::Lower>(blocks.diagonal(1), rows);
    }
    const WarpBlock product = sum.total(1.0f);
    BlockSum joined;
    joined.add<Take::Itself, Shape::Lower>(blocks.diagonal(2 + r), product);
    __syncwarp();
    store_block(blocks.quarter(r, c), joined.total(-1.0f));
    if (r == 1) return;
    BlockSum below;
    below.add<Take::Itself, Shape::Full>(blocks.beside(1), product);
    store_block(blocks.rest(c), below.total(-1.0f));
}

/// What a warp's row of blocks has left of the diagonal, from column b on.
FORGE_DEVICE WarpBlock inverse_block(const InverseBlocks& blocks, int warp, int b) {
    if (b == warp / 2 * 2) return load_block(blocks.beside(warp / 2));
    WarpBlock x = load_block(blocks.quarter(warp - 2, b));
    if (warp == 3) {
        const WarpBlock rest = load_block(blocks.rest(b));
#pragma unroll
        for (int n = 0; n < 8; ++n) x.x[n] += rest.x[n];
    }
    return x;
}

}  // namespace detail

/// `work`: kInverseFloats in shared memory, 16-byte aligned.
constexpr int kInverseFloats = detail::InverseBlocks::kCount * detail::InverseBlocks::kFloats;
FORGE_DEVICE Fragment<64, 64> unit_lower_inverse(const Fragment<64, 64>& a, float* work) {
    using namespace detail;
    const InverseBlocks blocks{work};
    const int w = uniform(warp());
    const WarpBlock own = block_of(a, w);
    if (w >= 2) store_block(blocks.quarter(w - 2, 1), block_of(a, 1));
    invert_eights(own, blocks.diagonal(w));
    __syncwarp();
    join_eights(own, blocks.diagonal(w));
    sync();
    if (w % 2 == 1) join_sixteens(blocks, block_of(a, w - 1), w / 2);
    sync();
    join_halves(blocks, a, w);
    sync();
    Fragment<64, 64> x = {};
#pragma unroll
    for (int b = 0; b < 4; ++b) {
        if (b > w) continue;
        const WarpBlock block = b == w ? load_block(blocks.diagonal(w)) : inverse_block(blocks, w, b);
#pragma unroll
        for (int n = 0; n < 8; ++n)
            if (b < w || n < 4 || n >= 6) x.x[8 * b + n] = block.x[n];  // of the diagonal's nothing above
    }
    return x;
}

}  // namespace forge::cuda
