/// As in move.h and shifted.h, of matrices that have fewer columns in memory than on chip: `cols`, or more than are
/// asked for. What is loaded has zeros behind them, and nothing is stored there. Of states, rows too. Rows that begin
/// at multiples of 16, 8 or 4 bytes are copied in pieces of so many.
#pragma once

#include "shifted.h"

namespace forge::cuda {
namespace detail {

template <int BYTES>
struct PieceOf;
template <>
struct PieceOf<16> {
    using T = uint4;
    FORGE_DEVICE static void copy(unsigned to, const void* from, int valid) { ptx::copy_16(to, from, valid); }
};
template <>
struct PieceOf<8> {
    using T = uint2;
    FORGE_DEVICE static void copy(unsigned to, const void* from, int valid) { ptx::copy_8(to, from, valid); }
};
template <>
struct PieceOf<4> {
    using T = unsigned;
    FORGE_DEVICE static void copy(unsigned to, const void* from, int valid) { ptx::copy_4(to, from, valid); }
};

/// The most bytes of which a matrix's rows have whole pieces, as copies can move them; less than 4: none.
template <class T>
FORGE_DEVICE int bytes_of_pieces(const T* p, Size row_stride, Size col_stride) {
    if (col_stride != 1) return 0;
    const Size bits = reinterpret_cast<Size>(p) | row_stride * static_cast<Size>(sizeof(T));
    return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 0;
}

/// Of a piece that begins at `col`, bytes that lie before the end of the row.
template <class T, int BYTES>
FORGE_DEVICE int valid_bytes(int col, int cols) {
    return min(max((cols - col) * static_cast<int>(sizeof(T)), 0), BYTES);
}

/// From row `begin` on.
template <class Who, int BYTES, class O>
FORGE_DEVICE void start_part_pieces(const O& o, const typename O::T* src, Size row_stride, int begin, int rows,
                                    int cols) {
    constexpr int kNumbers = BYTES / 2, kRow = O::kCols / kNumbers, kUnroll = Who::kUnroll > 1 ? 4 : 1;
#pragma unroll kUnroll
    for (int n = Who::self() + begin * kRow; n < O::kRows * kRow; n += Who::kCount) {
        const int row = n / kRow, col = n % kRow * kNumbers;
        const int valid = row < rows ? valid_bytes<typename O::T, BYTES>(col, cols) : 0;
        PieceOf<BYTES>::copy(ptx::shared_address(o.data + O::place(row, col)),
                             valid > 0 ? src + row * row_stride + col : src, valid);
    }
}

template <class Who, class O>
FORGE_DEVICE void start_part(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int begin,
                             int rows, int cols, int bytes) {
    if (bytes == 16) return start_part_pieces<Who, 16>(o, src, row_stride, begin, rows, cols);
    if (bytes == 8) return start_part_pieces<Who, 8>(o, src, row_stride, begin, rows, cols);
    if (bytes == 4) return start_part_pieces<Who, 4>(o, src, row_stride, begin, rows, cols);
#pragma unroll 1
    for (int n = Who::self() + begin * O::kCols; n < O::kRows * O::kCols; n += Who::kCount) {
        const int row = n / O::kCols, col = n % O::kCols;
        o.data[O::place(row, col)] =
            row < rows && col < cols ? src[row * row_stride + col * col_stride] : typename O::T{0};
    }
}

template <int BYTES, class O>
FORGE_DEVICE void store_part_pieces(typename O::T* dst, Size row_stride, const O& o, int rows, int cols) {
    using Piece = typename PieceOf<BYTES>::T;
    constexpr int kNumbers = BYTES / 2, kRow = O::kCols / kNumbers;
#pragma unroll 4
    for (int n = thread(); n < O::kRows * kRow; n += kThreads) {
        const int row = n / kRow, col = n % kRow * kNumbers;
        if (row < rows && col < cols)
            *reinterpret_cast<Piece*>(dst + row * row_stride + col) =
                *reinterpret_cast<const Piece*>(o.data + O::place(row, col));
    }
}

}  // namespace detail

template <class Who, class O>
FORGE_DEVICE void start_part(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows,
                             int cols) {
    detail::start_part<Who>(o, src, row_stride, col_stride, 0, rows, cols,
                            detail::bytes_of_pieces(src, row_stride, col_stride));
}

template <class Who, int ROWS, class O>
FORGE_DEVICE void start_shifted(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows,
                                bool first, const RowsBefore& before, int cols) {
    const int begin = first ? ROWS : 0;
    detail::start_part<Who>(o, src - ROWS * row_stride, row_stride, col_stride, begin, rows, cols,
                            detail::bytes_of_pieces(src, row_stride, col_stride));
#pragma unroll 1
    for (int n = Who::self(); n < begin * O::kCols; n += Who::kCount) {
        const int row = n / O::kCols, col = n % O::kCols;
        o.data[O::place(row, col)] = from_float<typename O::T>(row < rows && col < cols ? before.at(row, col) : 0.0f);
    }
}

template <int M, int N, int LD, class Who>
FORGE_DEVICE void start_tile_part(float* tile, const float* src, Size row_stride, Size col_stride, int rows, int cols) {
    constexpr int kRow = N / kWidth;
    if (detail::in_pieces(src, row_stride, col_stride)) {
#pragma unroll 1
        for (int n = Who::self(); n < M * kRow; n += Who::kCount) {
            const int row = n / kRow, col = n % kRow * kWidth;
            const int valid = row < rows ? detail::valid_bytes<float, 16>(col, cols) : 0;
            ptx::copy_16(ptx::shared_address(tile + row * LD + col), valid > 0 ? src + row * row_stride + col : src,
                         valid);
        }
    } else {
#pragma unroll 1
        for (int n = Who::self(); n < M * N; n += Who::kCount) {
            const int row = n / N, col = n % N;
            const bool there = row < rows && col < cols;
            ptx::copy_4(ptx::shared_address(tile + row * LD + col),
                        there ? src + row * row_stride + col * col_stride : src, there ? 4 : 0);
        }
    }
}

template <class O>
FORGE_DEVICE void store_operand(typename O::T* dst, Size row_stride, Size col_stride, const O& o, int rows, int cols) {
    int bytes = detail::bytes_of_pieces(dst, row_stride, col_stride);
    while (bytes >= 4 && cols * 2 % bytes != 0) bytes /= 2;
    if (bytes == 16) return detail::store_part_pieces<16>(dst, row_stride, o, rows, cols);
    if (bytes == 8) return detail::store_part_pieces<8>(dst, row_stride, o, rows, cols);
    if (bytes == 4) return detail::store_part_pieces<4>(dst, row_stride, o, rows, cols);
#pragma unroll 1
    for (int n = thread(); n < O::kRows * O::kCols; n += kThreads) {
        const int row = n / O::kCols, col = n % O::kCols;
        if (row < rows && col < cols) dst[row * row_stride + col * col_stride] = o.data[O::place(row, col)];
    }
}

template <int M, int N>
FORGE_DEVICE void load_state(Fragment<M, N>& f, const float* src, Size row_stride, Size col_stride, int rows,
                             int cols) {
    each<M, N>([&](const Spot& s) {
        const float* const p = src + s.i * row_stride + s.j * col_stride;
        const bool there = src && s.i < rows;
        f.put(s, {{there && s.j < cols ? p[0] : 0.0f, there && s.j + 1 < cols ? p[col_stride] : 0.0f}});
    });
}

/// Of a fragment, whatever it is of.
template <int M, int N>
FORGE_DEVICE void store_state(float* dst, Size row_stride, Size col_stride, const Fragment<M, N>& f, int rows,
                              int cols) {
    each<M, N>([&](const Spot& s) {
        float* const p = dst + s.i * row_stride + s.j * col_stride;
        if (s.i < rows && s.j < cols) p[0] = f.at(s).x[0];
        if (s.i < rows && s.j + 1 < cols) p[col_stride] = f.at(s).x[1];
    });
}
template <int M, int N>
FORGE_DEVICE void store_rows(float* dst, Size row_stride, Size col_stride, const Fragment<M, N>& f, int rows,
                             int cols) {
    store_state(dst, row_stride, col_stride, f, rows, cols);
}

/// Between tiles and tensors of any type, number by number.
template <class T, int M, int N, int LD>
FORGE_DEVICE void load_tile_part(float* tile, const T* src, Size row_stride, Size col_stride, int rows, float pad,
                                 int cols) {
#pragma unroll 2
    for (int n = thread(); n < M * N; n += kThreads) {
        const int row = n / N, col = n % N;
        const float behind = row < rows ? 0.0f : pad;
        tile[row * LD + col] =
            row < rows && col < cols ? load_number(src + row * row_stride + col * col_stride) : behind;
    }
}
template <class T, int M, int N, int LD>
FORGE_DEVICE void store_tile_part(T* dst, Size row_stride, Size col_stride, const float* tile, int rows, int cols) {
#pragma unroll 2
    for (int n = thread(); n < M * N; n += kThreads) {
        const int row = n / N, col = n % N;
        if (row < rows && col < cols) dst[row * row_stride + col * col_stride] = from_float<T>(tile[row * LD + col]);
    }
}

}  // namespace forge::cuda
