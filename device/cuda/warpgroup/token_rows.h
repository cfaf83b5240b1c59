/// A chunk's matrix of 16-bit numbers that is read where it lies in global memory, four numbers of a row at a time,
/// each once. Rows from `rows` on are zeros.
#pragma once

#include "operand.h"

namespace forge::cuda {

template <class Element>
struct TokenRows {
    using T = Element;
    const T* data;
    Size row_stride, col_stride;
    int rows;
    bool together;  ///< whether four may be read at once, by 32-bit offsets

    FORGE_DEVICE TokenRows(const T* data_, Size row_stride_, Size col_stride_, int rows_)
        : data(data_), row_stride(row_stride_), col_stride(col_stride_), rows(rows_) {
        constexpr Size kMostStride = 1 << 24;
        together = rows >= 64 && col_stride == 1 && row_stride < kMostStride &&
                   (reinterpret_cast<Size>(data) | row_stride * 2) % 8 == 0;
    }

    FORGE_DEVICE float number(int row, int col) const {
        return row < rows ? to_float(data[row * row_stride + col * col_stride]) : 0.0f;
    }
    /// Numbers (row, col) to (row, col + 3); col is a multiple of 4.
    template <bool TOGETHER>
    FORGE_DEVICE uint2 four(int row, int col) const {
        if constexpr (TOGETHER)
            return *reinterpret_cast<const uint2*>(
                data + (static_cast<unsigned>(row) * static_cast<unsigned>(row_stride) + static_cast<unsigned>(col)));
        else
            return make_uint2(HalfOf<T>::pack(number(row, col), number(row, col + 1)),
                              HalfOf<T>::pack(number(row, col + 2), number(row, col + 3)));
    }
};

/// Two or four neighbours of a row of floats, from (row, col) on, where they lie; zeros from row `rows` on.
FORGE_DEVICE pair pair_where_it_lies(const float* data, Size row_stride, Size col_stride, int rows, int row, int col) {
    if (row >= rows) return broadcast_pair(0.0f);
    const float* const from = data + row * row_stride + col * col_stride;
    return {{from[0], from[col_stride]}};
}
FORGE_DEVICE vec four_where_they_lie(const float* data, Size row_stride, Size col_stride, int rows, int row, int col) {
    const pair a = pair_where_it_lies(data, row_stride, col_stride, rows, row, col),
               b = pair_where_it_lies(data, row_stride, col_stride, rows, row, col + 2);
    return {{a.x[0], a.x[1], b.x[0], b.x[1]}};
}

}  // namespace forge::cuda
