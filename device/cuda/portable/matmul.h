/// Matrix product of tiles: c[M, N] = a·b, c += a·b or c -= a·b, on the tensor cores.
///
/// A(i, k) = a[i * AI + k * AK] and B(k, j) = b[k * BK + j * BN], so transposed operands cost nothing; c is row-major
/// with stride LDC. Each warp takes a rectangle of c in blocks of 16 x 8 and walks along k in steps of 8 or 16. Rows
/// and columns past the edge are read again from inside, never stored. Operands do not overlap the result.
#pragma once

#include "product.h"

namespace forge::cuda {

/// OutLower: only c(i, j) with j <= i + DIAG is wanted; the rest of c is unspecified.
/// ALower: A(i, k) = 0 for k > i + DIAG. AUpper: A(i, k) = 0 for k < i + DIAG.
enum class Tri { None, OutLower, ALower, AUpper };

namespace detail {

/// How a warp reads an operand: number by number; four (or two) neighbours along the rows or columns of the result at a
/// time; or four along k, of both operands.
enum class Reads { Numbers, Fours, Twos, Along };

/// 0, 4, 1, 5, 2, 6, 3, 7: vectors so far apart, of rows an odd number of vectors apart, lie in different memory banks
/// if eight lanes read two of them in each of four rows.
FORGE_DEVICE int spread(int g) { return g / 2 + g % 2 * 4; }

/// ROWS x COLS blocks of c in one warp's registers, of operands that are read in vectors where they lie so that this
/// can be. Which rows and columns of c a lane's numbers are follows from how it reads: only that all lanes of a block,
/// and both operands along k, mean the same counts. WHOLE: all of c is inside.
template <int M, int N, int K, int AI, int AK, int BK, int BN, Precision P, int ROWS, int COLS, bool WHOLE,
          bool ALIGNED>
struct Patch {
    static constexpr bool kAlong = ALIGNED && AK == 1 && BK == 1 && AI % kWidth == 0 && BN % kWidth == 0;
    static constexpr Reads kLeft = kAlong                                                       ? Reads::Along
                                   : !ALIGNED || AI != 1 || AK % kWidth != 0 || M % kWidth != 0 ? Reads::Numbers
                                   : ROWS % 2 == 0                                              ? Reads::Fours
                                                                                                : Reads::Twos;
    static constexpr Reads kRight = kAlong                                                       ? Reads::Along
                                    : !ALIGNED || BN != 1 || BK % kWidth != 0 || N % kWidth != 0 ? Reads::Numbers
                                    : COLS % 4 == 0                                              ? Reads::Fours
                                    : COLS % 2 == 0                                              ? Reads::Twos
                                                                                                 : Reads::Numbers;
    /// Neighbouring columns of c that a lane has in its blocks.
    static constexpr int kBeside = kRight == Reads::Numbers || N % kWidth != 0 ? 1
                                   : COLS % 4 == 0                             ? 4
                                   : COLS % 2 == 0                             ? 2
                                                                               : 1;
    static constexpr int kChains = ROWS * COLS < 4 ? 2 : 1;
    float sum[kChains][ROWS][COLS][4] = {};

    /// The row of c that slot `s`, of eight lanes, has in its lane g.
    FORGE_DEVICE static int row_of(int s, int g) {
        if constexpr (kLeft == Reads::Fours) return s / 4 * 32 + 4 * spread(g) + s % 4;
        else if constexpr (kLeft == Reads::Twos) return s / 2 * 16 + 2 * spread(g) + s % 2;
        else if constexpr (kLeft == Reads::Along) return s * 8 + spread(g);
        else return s * 8 + g;
    }
    /// The column of c that lane u of block c has.
    FORGE_DEVICE static int column_of(int c, int u) {
        if constexpr (kRight == Reads::Along && kBeside == 4) return c / 4 * 32 + 4 * u + c % 4;
        else if constexpr (kRight == Reads::Along && kBeside == 2)
            return c / 2 * 16 + 2 * (u / 4 * 4 + u % 2 * 2 + u / 2 % 2) + c % 2;
        else if constexpr (kBeside > 1) return c / kBeside * 8 * kBeside + kBeside * spread(u) + c % kBeside;
        else return c * 8 + u;
    }

    FORGE_DEVICE void run(const float* a, const float* b, int row, int col, int k0, int k1) {
        constexpr int kStep = kAlong ? 16 : 8;
#pragma unroll 2
        for (int k = k0 / kStep * kStep; k < k1; k += kStep * kChains) {
            step<0>(a, b, row, col, k);
            if (kChains > 1 && k + kStep < k1) step<kChains - 1>(a, b, row, col, k + kStep);
        }
        if constexpr (kChains > 1) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int c = 0; c < COLS; ++c)
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[0][r][c][e] += sum[1][r][c][e];
        }
    }

    /// Writes what lies before (row_end, col_end).
    template <Acc ACC, int LDC>
    FORGE_DEVICE void write(float* c, int row, int col, int row_end, int col_end) const {
        const int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int s = 0; s < 2 * ROWS; ++s) {
            const int i = row + row_of(s, g);
#pragma unroll
            for (int n = 0; n < COLS; n += kBeside) {
                if constexpr (kBeside == 1) {
                    const int j = col + column_of(n, 2 * t);
                    if (WHOLE || (i < row_end && j < col_end))
                        put<ACC>(c + i * LDC + j, value(s, n, 0), value(s, n, 1));
                } else {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int j = col + column_of(n, 2 * t + e);
                        if (!WHOLE && (i >= row_end || j >= col_end)) continue;
                        float* const to = c + i * LDC + j;
                        if constexpr (kBeside == 4 && ACC == Acc::Set && LDC % kWidth == 0) {
                            store(to, {{value(s, n, e), value(s, n + 1, e), value(s, n + 2, e), value(s, n + 3, e)}});
                        } else {
                            put<ACC>(to, value(s, n, e), value(s, n + 1, e));
                            if constexpr (kBeside == 4) put<ACC>(to + 2, value(s, n + 2, e), value(s, n + 3, e));
                        }
                    }
                }
            }
        }
    }

  private:
    [[nodiscard]] FORGE_DEVICE float value(int slot, int block, int e) const {
        return sum[0][slot / 2][block][slot % 2 * 2 + e];
    }
    /// The nearest place for a vector of `width` below SIZE.
    template <int SIZE>
    FORGE_DEVICE static int inside(int i, int width = 1) {
        return WHOLE || i + width <= SIZE ? i : SIZE - width;
    }

    template <int CHAIN>
    FORGE_DEVICE void step(const float* a, const float* b, int row, int col, int k) {
        const int g = lane() / 4, t = lane() % 4;
        if constexpr (kAlong) {
            vec left[2 * ROWS], right[COLS];
#pragma unroll
            for (int s = 0; s < 2 * ROWS; ++s) left[s] = along(a + inside<M>(row + row_of(s, g)) * AI, k + 4 * t);
#pragma unroll
            for (int c = 0; c < COLS; ++c) right[c] = along(b + inside<N>(col + column_of(c, g)) * BN, k + 4 * t);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                float x[ROWS][4], y[COLS][2];
#pragma unroll
                for (int s = 0; s < 2 * ROWS; ++s)
#pragma unroll
                    for (int h = 0; h < 2; ++h) x[s / 2][s % 2 + 2 * h] = left[s].x[2 * m + h];
#pragma unroll
                for (int c = 0; c < COLS; ++c)
#pragma unroll
                    for (int h = 0; h < 2; ++h) y[c][h] = right[c].x[2 * m + h];
                multiply<P>(sum[CHAIN], x, y);
            }
        } else {
            float x[ROWS][4], y[COLS][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int depth = k + 4 * h + t;
                const bool in = K % 8 == 0 || depth < K;
                read_left(a + (in ? depth : 0) * AK, in, row, g, h, x);
                read_right(b + (in ? depth : 0) * BK, in, col, g, h, y);
            }
            multiply<P>(sum[CHAIN], x, y);
        }
    }

    /// Four along k, or zeros from K on.
    FORGE_DEVICE static vec along(const float* p, int k) {
        if constexpr (K % 16 == 0) return load(p + k);
        vec v = load(p + (k < K ? k : 0));
#pragma unroll
        for (int l = 0; l < kWidth; ++l) v.x[l] = k + l < K ? v.x[l] : 0.0f;
        return v;
    }

    FORGE_DEVICE static void read_left(const float* a, bool in, int row, int g, int h, float (&x)[ROWS][4]) {
        if constexpr (kLeft == Reads::Fours) {
#pragma unroll
            for (int s = 0; s < 2 * ROWS; s += 4) {
                const vec v = load(a + inside<M>(row + row_of(s, g), 4));
#pragma unroll
                for (int l = 0; l < 4; ++l) x[(s + l) / 2][l % 2 + 2 * h] = in ? v.x[l] : 0.0f;
            }
        } else if constexpr (kLeft == Reads::Twos) {
#pragma unroll
            for (int s = 0; s < 2 * ROWS; s += 2) {
                const pair v = load_pair(a + inside<M>(row + row_of(s, g), 2));
#pragma unroll
                for (int l = 0; l < 2; ++l) x[s / 2][l + 2 * h] = in ? v.x[l] : 0.0f;
            }
        } else {
#pragma unroll
            for (int s = 0; s < 2 * ROWS; ++s)
                x[s / 2][s % 2 + 2 * h] = in ? a[inside<M>(row + row_of(s, g)) * AI] : 0.0f;
        }
    }

    FORGE_DEVICE static void read_right(const float* b, bool in, int col, int g, int h, float (&y)[COLS][2]) {
        if constexpr (kRight == Reads::Fours) {
#pragma unroll
            for (int c = 0; c < COLS; c += 4) {
                const vec v = load(b + inside<N>(col + column_of(c, g), 4));
#pragma unroll
                for (int l = 0; l < 4; ++l) y[c + l][h] = in ? v.x[l] : 0.0f;
            }
        } else if constexpr (kRight == Reads::Twos) {
#pragma unroll
            for (int c = 0; c < COLS; c += 2) {
                const pair v = load_pair(b + inside<N>(col + column_of(c, g), 2));
#pragma unroll
                for (int l = 0; l < 2; ++l) y[c + l][h] = in ? v.x[l] : 0.0f;
            }
        } else {
#pragma unroll
            for (int c = 0; c < COLS; ++c) y[c][h] = in ? b[inside<N>(col + column_of(c, g)) * BN] : 0.0f;
        }
    }
};

}  // namespace detail

/// ALIGNED: operands begin at 16 bytes.
template <int M, int N, int K, int AI, int AK, int BK, int BN, int LDC, Precision P, Acc ACC = Acc::Set,
          Tri TRI = Tri::None, int DIAG = 0, bool ALIGNED = true>
FORGE_DEVICE void matmul(const float* a, const float* b, float* c) {
    constexpr int kDown = detail::warps_down(pieces(M, 16), pieces(N, 8), kWarps), kAcross = kWarps / kDown;
    constexpr int kRows = pieces(pieces(M, 16), kDown), kCols = pieces(pieces(N, 8), kAcross);  // blocks of one warp
    constexpr int kWide = min(kCols, 4), kTall = min(kRows, kWide > 2 ? 2 : 4);                 // … and at a time
    constexpr bool kWhole =
        kDown * kRows * 16 == M && kAcross * kCols * 8 == N && kRows % kTall == 0 && kCols % kWide == 0;
    const int row0 = warp() % kDown * kRows * 16, col0 = warp() / kDown * kCols * 8;
    const int row1 = min(M, row0 + kRows * 16), col1 = min(N, col0 + kCols * 8);
    for (int row = row0; row < row1; row += kTall * 16) {
        for (int col = col0; col < col1; col += kWide * 8) {
            if (TRI == Tri::OutLower && col > row + kTall * 16 - 1 + DIAG) continue;
            const int k0 = TRI == Tri::AUpper ? max(0, row + DIAG) : 0;
            const int k1 = TRI == Tri::ALower ? min(K, row + kTall * 16 + DIAG) : K;
            detail::Patch<M, N, K, AI, AK, BK, BN, P, kTall, kWide, kWhole, ALIGNED> patch;
            patch.run(a, b, row, col, k0, k1);
            patch.template write<ACC, LDC>(c, row, col, row1, col1);
        }
    }
}

}  // namespace forge::cuda
