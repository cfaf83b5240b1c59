/// Copies that one thread issues and the hardware carries out: of rows of token tensors, of what earlier kernels
/// stored, and of results. Loads report to a barrier in shared memory; the thread itself waits for stores to have read.
#pragma once

#include "../ptx/barrier.h"
#include "../ptx/bulk.h"
#include "floats.h"
#include "move.h"
#include "part.h"

namespace forge::cuda {
namespace detail {

FORGE_DEVICE void wait(unsigned barrier, unsigned parity) {
    while (!ptx::barrier_passed(barrier, parity)) {}
}

}  // namespace detail

/// A task's rows of a token tensor, for tensor copies.
struct Mapped {
    const void* map;
    int col, row, head, sequence;  ///< of the task's first row

    FORGE_DEVICE Mapped(const TensorMaps& maps, int index, const Call& call, int tensor, const Task& at, Size column,
                        int rows_per_token = 1)
        : map(maps.map[index]),
          col(static_cast<int>(column)),
          row(static_cast<int>(at.start) * rows_per_token),
          head(static_cast<int>(at.head / call.tensors[tensor].group)),
          sequence(call.offsets ? 0 : static_cast<int>(at.sequence)) {}
    /// `box`: the column, row, head and sequence; `right`: columns further on.
    FORGE_DEVICE Mapped(const void* map, const int* box, int right)
        : map(map), col(box[0] + right), row(box[1]), head(box[2]), sequence(box[3]) {}
};

/// Whether tensor copies may move these rows of a chunk of `all`: they do not know where a packed sequence ends.
FORGE_DEVICE bool by_copies(const TensorMaps& maps, const Call& call, int rows, int all) {
    return maps.usable && (rows == all || !call.offsets);
}

// Copies that one thread issues, and that report to the barrier `filled`, which expects their bytes. A tensor copy
// moves kBoxRows rows of a panel of columns.

constexpr int kBoxRows = 64;

/// `use(shared, col, row)` for each box of an operand's matrix.
template <class O, class Use>
FORGE_DEVICE void each_box(const O& o, Use use) {
#pragma unroll
    for (int col = 0; col < O::kCols; col += kPanel)
#pragma unroll
        for (int row = 0; row < O::kRows; row += kBoxRows)
            use(ptx::shared_address(o.data) + (col / kPanel * O::kPanelNumbers + row * kPanel) * 2, col, row);
}

template <class O>
FORGE_DEVICE void copy_operand(unsigned filled, const O& o, const Mapped& m, Size first) {
    each_box(o, [&](unsigned shared, int col, int row) {
        ptx::tensor_load(shared, m.map, m.col + col, m.row + static_cast<int>(first) + row, m.head, m.sequence, filled);
    });
}

/// The same of a matrix of floats, which are split when they have arrived (floats.h).
template <class O>
FORGE_DEVICE void copy_operand_of_floats(unsigned filled, const O& o, const Mapped& m, Size first) {
    each_box(o, [&](unsigned, int col, int row) {
        ptx::tensor_load(ptx::shared_address(detail::place_of_float(o, row, col)), m.map, m.col + col,
                         m.row + static_cast<int>(first) + row, m.head, m.sequence, filled);
    });
}

/// The same of some rows of an image of floats of ROWS, or all.
template <int ROWS, class O>
FORGE_DEVICE void copy_float_image(unsigned filled, const O& o, const float* src) {
#pragma unroll
    for (int panel = 0; panel < O::kCols; panel += kPanel)
        ptx::bulk_load(ptx::shared_address(detail::place_of_float(o, 0, panel)),
                       src + FloatImage<ROWS>::place(0, panel), O::kRows * kPanel * 4, filled);
}

/// The operand as an earlier kernel stored it.
template <class O>
FORGE_DEVICE void copy_image(unsigned filled, const O& o, const float* src) {
    ptx::bulk_load(ptx::shared_address(o.data), src, O::kPieces * 16, filled);
}

template <int FLOATS>
FORGE_DEVICE void copy_numbers(unsigned filled, float* dst, const float* src) {
    ptx::bulk_load(ptx::shared_address(dst), src, FLOATS * 4, filled);
}

/// Parts of rows, which do not lie together.
template <int ROWS, int COLS, int ROW_STRIDE>
FORGE_DEVICE void copy_parts_of_rows(unsigned filled, float* dst, const float* src, int src_stride) {
    for (int i = 0; i < ROWS; ++i) copy_numbers<COLS>(filled, dst + i * ROW_STRIDE, src + i * src_stride);
}

/// What tensor copies cannot move; as start_operand otherwise, with short text.
template <class Who, class O>
FORGE_DEVICE void start_rows(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows) {
    if (detail::in_pieces(src, row_stride, col_stride)) detail::start_pieces<Who>(o, src, row_stride, rows);
    else detail::move_numbers<Who>(o, src, row_stride, col_stride, rows);
}

/// Each store is one group, those that threads make an empty one (kernel::Kind::StoresRead).
FORGE_DEVICE void end_of_stores() {
    if (thread() == 0) ptx::bulk_commit();
}

/// The operand to rows of a tensor; its memory may be written again after stores_read().
template <class O>
FORGE_DEVICE void store_by_copy(const Mapped& m, Size first, const O& o) {
    if (thread() != 0) return;
    each_box(o, [&](unsigned shared, int col, int row) {
        ptx::tensor_store(m.map, m.col + col, m.row + static_cast<int>(first) + row, m.head, m.sequence, shared);
    });
    end_of_stores();
}

/// The same, or as in move.h.
template <class O>
FORGE_DEVICE void store_operand(bool by_copy, const Mapped& m, Size first, typename O::T* dst, Size row_stride,
                                Size col_stride, const O& o, int rows) {
    if (by_copy) store_by_copy(m, first, o);
    else store_operand(dst, row_stride, col_stride, o, rows), end_of_stores();
}

/// The same with short text, as in start_rows.
template <class O>
FORGE_DEVICE void store_operand_briefly(bool by_copy, const Mapped& m, Size first, typename O::T* dst, Size row_stride,
                                        Size col_stride, const O& o, int rows) {
    if (by_copy) return store_by_copy(m, first, o);
    if (detail::in_pieces(dst, row_stride, col_stride)) detail::store_pieces(dst, row_stride, o, rows);
    else detail::store_numbers(dst, row_stride, col_stride, o, rows);
    end_of_stores();
}

/// The operand as it lies, for a later kernel; its memory may be written again after stores_read().
template <class O>
FORGE_DEVICE void store_image_by_copy(float* dst, const O& o) {
    if (thread() != 0) return;
    ptx::bulk_store(dst, ptx::shared_address(o.data), O::kPieces * 16);
    end_of_stores();
}

/// Of a matrix that has fewer columns in memory (part.h); copies do not write what lies behind them.
template <class O>
FORGE_DEVICE void store_operand(bool by_copy, const Mapped& m, Size first, typename O::T* dst, Size row_stride,
                                Size col_stride, const O& o, int rows, int cols) {
    if (by_copy) store_by_copy(m, first, o);
    else store_operand(dst, row_stride, col_stride, o, rows, cols), end_of_stores();
}

/// Memory that this group's stores read, but for the last PENDING ones, may be written after the group's next barrier.
template <int PENDING = 0>
FORGE_DEVICE void stores_read() {
    if (thread() == 0) ptx::bulk_wait_read<PENDING>();
}

}  // namespace forge::cuda
