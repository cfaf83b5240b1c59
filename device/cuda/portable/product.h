/// What a warp has of a matrix product: blocks of 16 x 8 numbers in its registers, and how operands become what the
/// matrix units take.
#pragma once

#include "../ptx/convert.h"
#include "../ptx/mma.h"
#include "vec.h"

namespace forge::cuda {

enum class Acc { Set, Add, Sub };

/// Float: as accurate as fp32, from three products of tf32 parts (Ootomo, Yokota 2022, arXiv:2203.03341, without its
/// correction of accumulation). Tf32: operands rounded to 10 mantissa bits.
enum class Precision { Float, Tf32 };

namespace detail {

constexpr float kRoundUp = 1.0f + 0x1p-11f;

/// An operand as the matrix instruction takes it: its leading bits, and for Float what they leave.
template <Precision P>
struct Parts {
    unsigned high, low;
    FORGE_DEVICE Parts() {}
    /// The matrix units ignore the low 13 bits: what they leave out is the second part, or made up for on average, as
    /// rounding would, by a factor of 1 + 2^-11.
    FORGE_DEVICE explicit Parts(float x) : high(__float_as_uint(P == Precision::Float ? x : x * kRoundUp)), low(0) {
        if constexpr (P == Precision::Float) low = __float_as_uint(x - __uint_as_float(high & 0xffffe000u));
    }
};

template <Precision P, int ROWS, int COLS, class Left, class Right>
FORGE_DEVICE void multiply_parts(float (&sum)[ROWS][COLS][4], const Parts<P> (&x)[ROWS][4],
                                 const Parts<P> (&y)[COLS][2], Left l, Right q) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLS; ++c)
            ptx::mma_m16n8k8_tf32(sum[r][c], {l(x[r][0]), l(x[r][1]), l(x[r][2]), l(x[r][3])},
                                  {q(y[c][0]), q(y[c][1])});
}

/// sum += x y, of what a lane has of ROWS and COLS blocks.
template <Precision P, int ROWS, int COLS>
FORGE_DEVICE void multiply(float (&sum)[ROWS][COLS][4], const float (&x)[ROWS][4], const float (&y)[COLS][2]) {
    Parts<P> left[ROWS][4], right[COLS][2];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) left[r][e] = Parts<P>(x[r][e]);
#pragma unroll
    for (int c = 0; c < COLS; ++c)
#pragma unroll
        for (int e = 0; e < 2; ++e) right[c][e] = Parts<P>(y[c][e]);
    const auto high = [](const Parts<P>& p) { return p.high; };
    const auto low = [](const Parts<P>& p) { return p.low; };
    if constexpr (P == Precision::Float) {
        multiply_parts(sum, left, right, low, high);
        multiply_parts(sum, left, right, high, low);
    }
    multiply_parts(sum, left, right, high, high);
}

/// ROWS x COLS blocks of c in one warp's registers. Few blocks are summed in two chains, even steps and odd ones, so
/// that one product need not wait for the one before. UNROLLED: so many turns of the loop over k.
template <int M, int N, int K, int AI, int AK, int BK, int BN, Precision P, int ROWS, int COLS, int UNROLLED = 2>
struct Product {
    static constexpr int kChains = ROWS * COLS < 4 ? 2 : 1;
    float sum[kChains][ROWS][COLS][4] = {};

    /// Adds the products for k in [k0, k1), k0 a multiple of 8, to the blocks from (row, col) on.
    FORGE_DEVICE void run(const float* a, const float* b, int row, int col, int k0, int k1) {
        const int g = lane() / 4, t = lane() % 4;
        const float* left[ROWS][2];
        const float* right[COLS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) left[r][h] = a + inside<M>(row + r * 16 + h * 8 + g) * AI + t * AK;
#pragma unroll
        for (int c = 0; c < COLS; ++c) right[c] = b + inside<N>(col + c * 8 + g) * BN + t * BK;
#pragma unroll UNROLLED
        for (int k = k0; k < k1; k += 8 * kChains) {
            step<0>(left, right, k, t);
            if (kChains > 1 && k + 8 < k1) step<kChains - 1>(left, right, k + 8, t);
        }
        if constexpr (kChains > 1) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int c = 0; c < COLS; ++c)
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[0][r][c][e] += sum[1][r][c][e], sum[1][r][c][e] = 0.0f;
        }
    }

    /// Sums begin as what lies there: from this row and column on, in pairs that are 8-byte aligned.
    FORGE_DEVICE void begin(const float* c, int ld, int row, int col) {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int n = 0; n < COLS; ++n)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float2 x = *reinterpret_cast<const float2*>(c + inside<M>(row + r * 16 + h * 8 + g) * ld +
                                                                      inside<N - 1>(col + n * 8 + 2 * t));
                    sum[0][r][n][2 * h] = x.x, sum[0][r][n][2 * h + 1] = x.y;
                }
    }

    /// f(row, col, x, y) for pairs of neighbouring results that lie before (row_end, col_end); y may lie in column N.
    template <class F>
    FORGE_DEVICE void each(int row, int col, int row_end, int col_end, F f) const {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLS; ++c)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int i = row + r * 16 + h * 8 + g, j = col + c * 8 + 2 * t;
                    if (i < row_end && j < col_end) f(i, j, sum[0][r][c][2 * h], sum[0][r][c][2 * h + 1]);
                }
    }

  private:
    /// The nearest index below SIZE.
    template <int SIZE>
    FORGE_DEVICE static int inside(int i) {
        return i < SIZE ? i : SIZE - 1;
    }

    template <int CHAIN>
    FORGE_DEVICE void step(const float* (&left)[ROWS][2], const float* (&right)[COLS], int k, int t) {
        const auto element = [&](const float* p, int stride, int half) {
            return K % 8 == 0 || k + 4 * half + t < K ? p[(k + 4 * half) * stride] : 0.0f;
        };
        float x[ROWS][4], y[COLS][2];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int e = 0; e < 4; ++e) x[r][e] = element(left[r][e % 2], AK, e / 2);
#pragma unroll
        for (int c = 0; c < COLS; ++c)
#pragma unroll
            for (int e = 0; e < 2; ++e) y[c][e] = element(right[c], BK, e);
        multiply<P>(sum[CHAIN], x, y);
    }
};

/// Writes a pair of results where they belong.
template <Acc ACC>
FORGE_DEVICE void put(float* p, float x, float y) {
    float2* const to = reinterpret_cast<float2*>(p);
    if constexpr (ACC == Acc::Set) {
        *to = make_float2(x, y);
    } else {
        const float2 old = *to;
        *to = ACC == Acc::Add ? make_float2(old.x + x, old.y + y) : make_float2(old.x - x, old.y - y);
    }
}

/// How many of `warps` share the rows of m x n blocks: the least work for the busiest warp, then the least loading.
__host__ __device__ constexpr int warps_down(int m, int n, int warps) {
    int best = 1, least = 1 << 30;
    for (int down = 1; down <= warps; down *= 2) {
        const int rows = pieces(m, down), cols = pieces(n, warps / down),
                  cost = 16 * rows * cols + 4 * rows + (cols % 4 == 0 ? 2 : 4) * cols;
        if (cost < least) best = down, least = cost;
    }
    return best;
}

}  // namespace detail

}  // namespace forge::cuda
