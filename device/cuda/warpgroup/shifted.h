/// Rows of the token before: those of a chunk's first token lie before the chunk, and a sequence's first token has what
/// the call before left, or zeros.
#pragma once

#include "move.h"

namespace forge::cuda {

/// Where the rows of a sequence's first token come from.
struct RowsBefore {
    const float* data;  ///< null: zeros
    Size row_stride, col_stride;
    Size first = 0;  ///< number of those that are wanted
    FORGE_DEVICE float at(int row, int col) const {
        return data ? data[first + row * row_stride + col * col_stride] : 0.0f;
    }
};

/// ROWS rows per token; `src`: of the chunk's first token; `first`: it is the sequence's.
template <class Who, int ROWS, class O>
FORGE_DEVICE void start_shifted(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows,
                                bool first, const RowsBefore& before) {
    const int begin = first ? ROWS : 0;
    const typename O::T* const from = src - ROWS * row_stride;
    if (detail::in_pieces(src, row_stride, col_stride)) {
        detail::each_piece<Who, O>([&](int row, int col) {
            if (row < begin) return;
            ptx::copy_16(ptx::shared_address(o.data + O::place(row, col)),
                         row < rows ? from + row * row_stride + col : src, row < rows ? 16 : 0);
        });
    } else {
#pragma unroll 1
        for (int n = Who::self() + begin * O::kCols; n < O::kRows * O::kCols; n += Who::kCount) {
            const int row = n / O::kCols, col = n % O::kCols;
            o.data[O::place(row, col)] = row < rows ? from[row * row_stride + col * col_stride] : typename O::T{0};
        }
    }
#pragma unroll 1
    for (int n = Who::self(); n < begin * O::kCols; n += Who::kCount) {
        const int row = n / O::kCols, col = n % O::kCols;
        o.data[O::place(row, col)] = from_float<typename O::T>(row < rows ? before.at(row, col) : 0.0f);
    }
}

}  // namespace forge::cuda
