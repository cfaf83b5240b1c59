/// Matrices of floats as operands of two or three bf16 parts. They arrive as they are, row by row, in the place of the
/// first two parts of each panel of columns; then the threads split them, each panel where it lies.
#pragma once

#include "part.h"

namespace forge::cuda {
namespace detail {

/// Where the float (row, col) arrives.
template <class O>
FORGE_DEVICE float* place_of_float(const O& o, int row, int col) {
    static_assert(O::kParts >= 2);
    return reinterpret_cast<float*>(o.data + col / kPanel * O::kPanelNumbers) + row * kPanel + col % kPanel;
}

}  // namespace detail

/// `rows` rows of `cols` numbers into an operand, as floats, by copies of four or of one; columns from `cols` on become
/// zeros.
template <class Who, int UNROLL = 1, class O>
FORGE_DEVICE void start_part(const O& o, const float* src, Size row_stride, Size col_stride, int rows, int cols) {
    if (detail::in_pieces(src, row_stride, col_stride)) {
        constexpr int kRow = O::kCols / kWidth;
#pragma unroll UNROLL
        for (int n = Who::self(); n < O::kRows * kRow; n += Who::kCount) {
            const int row = n / kRow, col = n % kRow * kWidth;
            const int valid = row < rows ? detail::valid_bytes<float, 16>(col, cols) : 0;
            ptx::copy_16(ptx::shared_address(detail::place_of_float(o, row, col)),
                         valid > 0 ? src + row * row_stride + col : src, valid);
        }
    } else {
#pragma unroll 1
        for (int n = Who::self(); n < O::kRows * O::kCols; n += Who::kCount) {
            const int row = n / O::kCols, col = n % O::kCols;
            const bool there = row < rows && col < cols;
            ptx::copy_4(ptx::shared_address(detail::place_of_float(o, row, col)),
                        there ? src + row * row_stride + col * col_stride : src, there ? 4 : 0);
        }
    }
}
template <class Who, class O>
FORGE_DEVICE void start_rows(const O& o, const float* src, Size row_stride, Size col_stride, int rows) {
    start_part<Who>(o, src, row_stride, col_stride, rows, O::kCols);
}
template <class O>
FORGE_DEVICE void start_operand(const O& o, const float* src, Size row_stride, Size col_stride, int rows) {
    start_part<Group, 4>(o, src, row_stride, col_stride, rows, O::kCols);
}
template <class O>
FORGE_DEVICE void start_operand_briefly(const O& o, const float* src, Size row_stride, Size col_stride, int rows) {
    start_part<Group>(o, src, row_stride, col_stride, rows, O::kCols);
}

/// What one kernel leaves another of a matrix: panels of columns, one after the other, each row by row.
template <int ROWS>
struct FloatImage {
    const float* data;
    FORGE_DEVICE explicit FloatImage(const float* data_) : data(data_) {}
    FORGE_DEVICE static constexpr int place(int row, int col) {
        return col / kPanel * ROWS * kPanel + row * kPanel + col % kPanel;
    }
    FORGE_DEVICE float number(int row, int col) const { return data[place(row, col)]; }
    FORGE_DEVICE pair at(int row, int col) const { return load_pair(data + place(row, col)); }
    FORGE_DEVICE vec four_at(int row, int col) const { return load(data + place(row, col)); }
};

/// An image, or its transpose, as a fragment.
template <bool TRANSPOSE, int M, int N, int ROWS>
FORGE_DEVICE Fragment<M, N> load_fragment(const FloatImage<ROWS>& image) {
    Fragment<M, N> f;
    each<M, N>([&](const Spot& s) {
        f.put(s, TRANSPOSE ? pair{{image.number(s.j, s.i), image.number(s.j + 1, s.i)}} : image.at(s.i, s.j));
    });
    return f;
}

/// Some rows of an image of ROWS, or all, into an operand, as floats.
template <int ROWS, class O>
FORGE_DEVICE void start_float_image(const O& o, const float* src) {
    constexpr int kPieces = O::kRows * kPanel / kWidth;  // of a panel
#pragma unroll
    for (int panel = 0; panel < O::kCols; panel += kPanel) {
        const unsigned to = ptx::shared_address(detail::place_of_float(o, 0, panel));
        const float* const from = ptx::global_address(src + FloatImage<ROWS>::place(0, panel));
#pragma unroll 4
        for (int n = thread(); n < kPieces; n += kThreads)
            ptx::copy_16(to + static_cast<unsigned>(n) * 16, from + n * kWidth, 16);
    }
}

/// A fragment's matrix, that whose transpose it holds, or an operand's into an image of ROWS.
template <int ROWS, int M, int N>
FORGE_DEVICE void store_float_image(float* dst, const Fragment<M, N>& f) {
    each_row<M, N>([&](int index, int i, int j) {
        float* const p = dst + FloatImage<ROWS>::place(i, j);
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
            *reinterpret_cast<float2*>(p + FloatImage<ROWS>::place(0, n * 8)) =
                make_float2(f.x[index + n * 4], f.x[index + n * 4 + 1]);
    });
}
template <int ROWS, int M, int N>
FORGE_DEVICE void store_float_image_of_transpose(float* dst, const Fragment<M, N>& f) {
    each_row<M, N>([&](int index, int i, int j) {
        float* const p = dst + FloatImage<ROWS>::place(j, i);
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
            p[n * 8 * kPanel] = f.x[index + n * 4];
            p[(n * 8 + 1) * kPanel] = f.x[index + n * 4 + 1];
        }
    });
}
template <int ROWS, class O>
FORGE_DEVICE void store_float_image(float* dst, const O& o) {
    constexpr int kRow = O::kCols / kWidth;
#pragma unroll 4
    for (int n = thread(); n < O::kRows * kRow; n += kThreads) {
        const int row = n / kRow, col = n % kRow * kWidth;
        store(dst + FloatImage<ROWS>::place(row, col), o.four_at(row, col));
    }
}

/// What has arrived becomes the operand. A thread has four neighbours of some rows; all of a panel is read before any
/// of it is written.
template <class O>
FORGE_DEVICE void split_floats(const O& o) {
    using Half = HalfOf<typename O::T>;
    constexpr int kRow = kPanel / kWidth, kStep = kThreads / kRow, kCount = O::kRows / kStep;
    const int row = thread() / kRow, col = thread() % kRow * kWidth;
#pragma unroll 1
    for (int panel = 0; panel < O::kCols; panel += kPanel) {
        const float* const from = detail::place_of_float(o, row, panel + col);
        vec x[kCount];
#pragma unroll
        for (int n = 0; n < kCount; ++n) x[n] = load(from + n * kStep * kPanel);
        sync();
#pragma unroll
        for (int n = 0; n < kCount; ++n) o.put_four(row + n * kStep, panel + col, x[n]);
    }
}

}  // namespace forge::cuda
