/// Between global memory and the tiles of a warp group. `start_…` functions only ask for data, by copies that run
/// beside computation, if rows are dense and begin at multiples of 16 bytes; else they move element by element.
/// `arrive` waits on behalf of all threads. Rows from `rows` on become zeros.
#pragma once

#include "fragment.h"

namespace forge::cuda {

/// Who moves something together: the threads of a warp group, or of one warp, which takes longer and few registers.
struct Group {
    static constexpr int kCount = kThreads, kUnroll = 64;
    FORGE_DEVICE static int self() { return thread(); }
};
struct Warp {
    static constexpr int kCount = kLanes, kUnroll = 1;
    FORGE_DEVICE static int self() { return lane(); }
};

namespace detail {

template <class T>
FORGE_DEVICE bool in_pieces(const T* p, Size row_stride, Size col_stride) {
    return col_stride == 1 && (reinterpret_cast<Size>(p) | row_stride * static_cast<Size>(sizeof(T))) % 16 == 0;
}

/// How the threads of a group share an operand's pieces, in bands of columns: of each band a thread has one column, its
/// pieces kStep rows apart, with one swizzle.
template <class O>
struct Bands {
    static constexpr int kCols = O::kCols % (2 * kPanel) == 0 ? 2 * kPanel : kPanel, kCount = O::kCols / kCols;
    static constexpr int kRow = kCols / kPiece, kStep = kThreads / kRow;
    static_assert(kStep % 8 == 0 && O::kRows % kStep == 0, "one swizzle for all of a thread's pieces");
    static constexpr int kNumbers = O::kRows * kCols * O::kParts;  ///< of a band

    int row = thread() / kRow, col = thread() % kRow * kPiece;  ///< of this thread's first piece
    FORGE_DEVICE int place() const { return O::place(row, col); }
};

/// Asks for all pieces, UNROLL of a band at a time; ALL: there are all rows.
template <int UNROLL, bool ALL, class O>
FORGE_DEVICE void start_bands(const O& o, const typename O::T* src, Size row_stride, int rows) {
    using Bands = detail::Bands<O>;
    const Bands first;
    for (int band = 0; band < Bands::kCount; ++band) {
        unsigned to = ptx::shared_address(o.data + first.place() + band * Bands::kNumbers);
        const typename O::T* from = src + first.row * row_stride + first.col + band * Bands::kCols;
#pragma unroll UNROLL
        for (int n = 0; n < O::kRows;
             n += Bands::kStep, to += Bands::kStep * kPanel * 2, from += Bands::kStep * row_stride)
            ptx::copy_16(to, from, ALL || first.row + n < rows ? 16 : 0);  // of rows that are not there nothing is read
    }
}

/// f(row, column) for each of this thread's pieces.
template <class Who, class O, class F>
FORGE_DEVICE void each_piece(F f) {
    constexpr int kRow = O::kCols / kPiece;
#pragma unroll 1
    for (int n = Who::self(); n < O::kRows * kRow; n += Who::kCount) f(n / kRow, n % kRow * kPiece);
}

/// Piece by piece.
template <class Who, class O>
FORGE_DEVICE void start_pieces(const O& o, const typename O::T* src, Size row_stride, int rows) {
    each_piece<Who, O>([&](int row, int col) {
        ptx::copy_16(ptx::shared_address(o.data + O::place(row, col)), row < rows ? src + row * row_stride + col : src,
                     row < rows ? 16 : 0);
    });
}

template <class O>
FORGE_DEVICE void store_pieces(typename O::T* dst, Size row_stride, const O& o, int rows) {
    each_piece<Group, O>([&](int row, int col) {
        if (row < rows)
            *reinterpret_cast<uint4*>(dst + row * row_stride + col) =
                *reinterpret_cast<const uint4*>(o.data + O::place(row, col));
    });
}

/// Number by number.
template <class O>
FORGE_DEVICE void store_numbers(typename O::T* dst, Size row_stride, Size col_stride, const O& o, int rows) {
#pragma unroll 1
    for (int n = thread(); n < O::kRows * O::kCols; n += kThreads) {
        const int row = n / O::kCols, col = n % O::kCols;
        if (row < rows) dst[row * row_stride + col * col_stride] = o.data[O::place(row, col)];
    }
}
template <class Who, class O>
FORGE_DEVICE void move_numbers(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows) {
#pragma unroll 1
    for (int n = Who::self(); n < O::kRows * O::kCols; n += Who::kCount) {
        const int row = n / O::kCols, col = n % O::kCols;
        o.data[O::place(row, col)] = row < rows ? src[row * row_stride + col * col_stride] : typename O::T{0};
    }
}

}  // namespace detail

/// ROWS x COLS numbers into an operand.
template <class O>
FORGE_DEVICE void start_operand(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows) {
    if (!detail::in_pieces(src, row_stride, col_stride))
        return detail::move_numbers<Group>(o, src, row_stride, col_stride, rows);
    if (rows >= O::kRows) detail::start_bands<O::kRows, true>(o, src, row_stride, rows);
    else detail::start_bands<O::kRows, false>(o, src, row_stride, rows);
}

/// The same in short loops, for kernels whose text is long.
template <class O>
FORGE_DEVICE void start_operand_briefly(const O& o, const typename O::T* src, Size row_stride, Size col_stride,
                                        int rows) {
    if (detail::in_pieces(src, row_stride, col_stride)) detail::start_bands<4, false>(o, src, row_stride, rows);
    else detail::move_numbers<Group>(o, src, row_stride, col_stride, rows);
}

/// The operand as an earlier kernel stored it.
template <class O>
FORGE_DEVICE void start_image(const O& o, const float* src) {
    const int self = thread();
    const unsigned to = ptx::shared_address(o.data) + static_cast<unsigned>(self) * 16;
    const float* const from = ptx::global_address(src + self * 4);
#pragma unroll
    for (int n = 0; n < O::kPieces; n += kThreads)
        if (O::kPieces % kThreads == 0 || n + self < O::kPieces)
            ptx::copy_16(to + static_cast<unsigned>(n) * 16, from + n * 4, 16);
}

/// The same of some rows of an image of ROWS, whose panels of columns lie one after the other.
template <int ROWS, class O>
FORGE_DEVICE void start_image_part(const O& o, const float* src) {
    constexpr int kPieces = O::kRows * kPanel / kPiece, kWhole = ROWS * kPanel / kPiece;  // of a part of a panel
    const unsigned to = ptx::shared_address(o.data);
    for (int n = thread(); n < O::kPieces; n += kThreads)
        ptx::copy_16(to + static_cast<unsigned>(n) * 16,
                     ptx::global_address(src + (n / kPieces * kWhole + n % kPieces) * 4), 16);
}

/// M x N floats into a tile with rows LD apart; N is a multiple of 4.
template <int M, int N, int LD, class Who = Group>
FORGE_DEVICE void start_tile(float* tile, const float* src, Size row_stride, Size col_stride, int rows) {
    constexpr int kRow = N / kWidth;
    const int self = Who::self();
    if (detail::in_pieces(src, row_stride, col_stride)) {
#pragma unroll Who::kUnroll
        for (int n = 0; n < M * kRow; n += Who::kCount) {
            const int row = (n + self) / kRow, col = (n + self) % kRow * kWidth;
            if (M * kRow % Who::kCount == 0 || n + self < M * kRow)
                ptx::copy_16(ptx::shared_address(tile + row * LD + col),
                             src + (row < rows ? row * row_stride + col : 0), row < rows ? 16 : 0);
        }
    } else {
#pragma unroll 1
        for (int n = self; n < M * N; n += Who::kCount)
            tile[n / N * LD + n % N] = n / N < rows ? src[n / N * row_stride + n % N * col_stride] : 0.0f;
    }
}

/// `rows` numbers into a tile of N, `pad` behind them.
template <class Who, int N, class T>
FORGE_DEVICE void start_numbers(float* tile, const T* src, Size stride, int rows, float pad) {
#pragma unroll
    for (int n = Who::self(); n < N; n += Who::kCount) {
        if (n >= rows) tile[n] = pad;
        else if constexpr (sizeof(T) == 4) ptx::copy_4(ptx::shared_address(tile + n), src + n * stride, 4);
        else tile[n] = to_float(src[n * stride]);
    }
}

/// FLOATS floats that an earlier kernel stored as they are; both addresses are multiples of 16 bytes.
template <int FLOATS>
FORGE_DEVICE void start_floats(float* dst, const float* src) {
    for (int n = thread() * kWidth; n < FLOATS; n += kThreads * kWidth)
        ptx::copy_16(ptx::shared_address(dst + n), src + n, 16);
}

/// All copies that this thread has started since the last commit are one group.
FORGE_DEVICE void started() { ptx::copy_commit(); }

/// Waits until the copies of all threads have completed, but for the last PENDING groups of each, and makes them and
/// what the threads wrote to shared memory visible to all threads and to the matrix units.
template <int PENDING>
FORGE_DEVICE void arrive() {
    ptx::copy_wait<PENDING>();
    ptx::fence_async();
    sync();
}

/// Makes what all threads wrote to shared memory visible to all threads and to the matrix units.
FORGE_DEVICE void publish() {
    ptx::fence_async();
    sync();
}

/// `rows` rows of an operand to rows of a matrix.
template <class O>
FORGE_DEVICE void store_operand(typename O::T* dst, Size row_stride, Size col_stride, const O& o, int rows) {
    using Bands = detail::Bands<O>;
    if (!detail::in_pieces(dst, row_stride, col_stride))
        return detail::store_numbers(dst, row_stride, col_stride, o, rows);
    const Bands first;
    for (int band = 0; band < Bands::kCount; ++band) {
        const typename O::T* const from = o.data + first.place() + band * Bands::kNumbers;
        typename O::T* to = dst + first.row * row_stride + first.col + band * Bands::kCols;
#pragma unroll
        for (int n = 0; n < O::kRows; n += Bands::kStep, to += Bands::kStep * row_stride)
            if (first.row + n < rows)
                *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + n * kPanel);
    }
}

/// The operand as it lies, for a later kernel.
template <class O>
FORGE_DEVICE void store_image(float* dst, const O& o) {
    for (int n = thread(); n < O::kPieces; n += kThreads)
        reinterpret_cast<uint4*>(dst)[n] = reinterpret_cast<const uint4*>(o.data)[n];
}

/// The same, of some rows of an image of ROWS.
template <int ROWS, class O>
FORGE_DEVICE void store_image_part(float* dst, const O& o) {
    constexpr int kPieces = O::kRows * kPanel / kPiece, kWhole = ROWS * kPanel / kPiece;  // of a part of a panel
    for (int n = thread(); n < O::kPieces; n += kThreads)
        reinterpret_cast<uint4*>(dst)[n / kPieces * kWhole + n % kPieces] = reinterpret_cast<const uint4*>(o.data)[n];
}

/// fragment(i, j) = src[i * row_stride + j * col_stride], a state's block; zeros if src is null.
template <int M, int N>
FORGE_DEVICE void load_state(Fragment<M, N>& f, const float* src, Size row_stride, Size col_stride) {
    each<M, N>([&](const Spot& s) {
        const float* const p = src + s.i * row_stride + s.j * col_stride;
        f.put(s, src ? pair{{p[0], p[col_stride]}} : broadcast_pair(0.0f));
    });
}

template <int M, int N>
FORGE_DEVICE void store_state(float* dst, Size row_stride, Size col_stride, const Fragment<M, N>& f) {
    each<M, N>([&](const Spot& s) {
        float* const p = dst + s.i * row_stride + s.j * col_stride;
        p[0] = f.at(s).x[0];
        p[col_stride] = f.at(s).x[1];
    });
}

/// `rows` rows of a fragment to rows of a matrix of floats.
template <int M, int N>
FORGE_DEVICE void store_rows(float* dst, Size row_stride, Size col_stride, const Fragment<M, N>& f, int rows) {
    if (col_stride == 1 && (reinterpret_cast<Size>(dst) | row_stride * 4) % 8 == 0) {
        each_row<M, N>([&](int index, int i, int j) {
            if (i >= rows) return;
            float* const p = dst + i * row_stride + j;
#pragma unroll
            for (int n = 0; n < N / 8; ++n)
                *reinterpret_cast<float2*>(p + n * 8) = make_float2(f.x[index + n * 4], f.x[index + n * 4 + 1]);
        });
    } else {
        Fragment<M, N> rest = f;  // in a loop of short text, its first registers the next ones
#pragma unroll 1
        for (int n = 0; n < Fragment<M, N>::kRegisters; n += 2) {
            const Spot s = spot_of<N>(n);
            float* const p = dst + s.i * row_stride + s.j * col_stride;
            if (s.i < rows) p[0] = rest.x[0], p[col_stride] = rest.x[1];
#pragma unroll
            for (int m = 0; m + 2 < Fragment<M, N>::kRegisters; ++m) rest.x[m] = rest.x[m + 2];
        }
    }
}

/// The same of a fragment that holds the transpose; of `cols` columns.
template <int M, int N>
FORGE_DEVICE void store_columns(float* dst, Size row_stride, Size col_stride, const Fragment<M, N>& f, int rows,
                                int cols = M) {
    each_row<M, N>([&](int index, int i, int j) {
        if (i >= cols) return;
        float* p = dst + i * col_stride + j * row_stride;
#pragma unroll
        for (int n = 0; n < N / 8; ++n, p += 8 * row_stride) {
            if (j + n * 8 < rows) p[0] = f.x[index + n * 4];
            if (j + n * 8 + 1 < rows) p[row_stride] = f.x[index + n * 4 + 1];
        }
    });
}

/// A summary of a part of a sequence for a state's block; a stride is 0 where all rows or columns have the same number.
struct Summary {
    const float* first;
    Size row_stride, col_stride;
    FORGE_DEVICE pair at(const Spot& s) const {
        const float* const p = first + s.i * row_stride + s.j * col_stride;
        return {{p[0], p[col_stride]}};
    }
};

/// The state behind that part, from the state before it.
template <int M, int N>
FORGE_DEVICE void join_summary(Fragment<M, N>& state, const Summary& input) {
    each<M, N>([&](const Spot& s) { state.put(s, state.at(s) + input.at(s)); });
}
template <int M, int N>
FORGE_DEVICE void join_summary(Fragment<M, N>& state, const Summary& transition, const Summary& input) {
    each<M, N>([&](const Spot& s) { state.put(s, state.at(s) * transition.at(s) + input.at(s)); });
}

}  // namespace forge::cuda
