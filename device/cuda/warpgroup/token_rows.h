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

}  // namespace forge::cuda
