/// A chunk's matrix of 16-bit numbers that is read where it lies in global memory, four numbers of a row at a time,
/// each once. Rows from `rows` on are zeros, and columns from `cols` on, where a matrix has fewer than are asked for.
#pragma once

#include "operand.h"

namespace forge::cuda {

constexpr int kAllColumns = 1 << 30;
FORGE_DEVICE bool is_column(int col, int cols) { return cols == kAllColumns || col < cols; }

template <class Element>
struct TokenRows {
    using T = Element;
    const T* data;
    Size row_stride, col_stride;
    int rows, cols;
    bool together;  ///< whether four may be read at once, by 32-bit offsets

    FORGE_DEVICE TokenRows(const T* data_, Size row_stride_, Size col_stride_, int rows_, int cols_ = kAllColumns)
        : data(data_), row_stride(row_stride_), col_stride(col_stride_), rows(rows_), cols(cols_) {
        constexpr Size kMostStride = 1 << 24;
        together = rows >= 64 && col_stride == 1 && row_stride < kMostStride &&
                   (reinterpret_cast<Size>(data) | row_stride * 2) % 8 == 0 && cols % 4 == 0;
    }

    FORGE_DEVICE float number(int row, int col) const {
        return row < rows && is_column(col, cols) ? to_float(data[row * row_stride + col * col_stride]) : 0.0f;
    }
    /// Numbers (row, col) to (row, col + 3); col is a multiple of 4.
    template <bool TOGETHER>
    FORGE_DEVICE uint2 four(int row, int col) const {
        if constexpr (TOGETHER) {
            if (!is_column(col, cols)) return make_uint2(0, 0);
            return *reinterpret_cast<const uint2*>(
                data + (static_cast<unsigned>(row) * static_cast<unsigned>(row_stride) + static_cast<unsigned>(col)));
        } else {
            return make_uint2(HalfOf<T>::pack(number(row, col), number(row, col + 1)),
                              HalfOf<T>::pack(number(row, col + 2), number(row, col + 3)));
        }
    }
};

/// Four neighbours of a row of floats, from (row, col) on, where they lie; zeros from row `rows` on.
FORGE_DEVICE vec four_where_they_lie(const float* data, Size row_stride, Size col_stride, int rows, int row, int col,
                                     int cols = kAllColumns) {
    if (row >= rows) return broadcast(0.0f);
    const float* const from = data + row * row_stride + col * col_stride;
    vec x = broadcast(0.0f);
#pragma unroll
    for (int n = 0; n < 4; ++n)
        if (is_column(col + n, cols)) x.x[n] = from[n * col_stride];
    return x;
}

/// A matrix of floats as a fragment has them; zeros from row `rows` on.
template <int M, int N>
FORGE_DEVICE Fragment<M, N> fragment_where_it_lies(const float* data, Size row_stride, Size col_stride, int rows,
                                                   int cols = kAllColumns) {
    constexpr int kRegisters = Fragment<M, N>::kRegisters;
    Fragment<M, N> f = {};
    if (col_stride == 1 && (reinterpret_cast<Size>(data) | row_stride * 4) % 8 == 0 && cols % 2 == 0) {
        each_row<M, N>([&](int index, int i, int j) {
            if (i >= rows) return;
            const float* const from = data + i * row_stride + j;
#pragma unroll
            for (int n = 0; n < N / 8; ++n) {
                if (!is_column(j + n * 8, cols)) continue;
                const float2 x = *reinterpret_cast<const float2*>(from + n * 8);
                f.x[index + n * 4] = x.x, f.x[index + n * 4 + 1] = x.y;
            }
        });
    } else {
#pragma unroll 1
        for (int n = 0; n < kRegisters; n += 2) {  // in a loop of short text: the registers move on by two
            const Spot s = spot_of<N>(n);
            const float* const from = data + s.i * row_stride + s.j * col_stride;
            const bool there = s.i < rows;
            const pair x = {{there && is_column(s.j, cols) ? from[0] : 0.0f,
                             there && is_column(s.j + 1, cols) ? from[col_stride] : 0.0f}};
#pragma unroll
            for (int m = 0; m < kRegisters; ++m) f.x[m] = m + 2 < kRegisters ? f.x[m + 2] : x.x[m % 2];
        }
    }
    return f;
}

}  // namespace forge::cuda
