/// Several warp groups that share a task (FORGE_GROUPS): the first is the producer of the chunks' inputs, each of its
/// warps of those of one stage. Either the second computes the carried states and the others outputs, each of every
/// other chunk; or the second computes what several tiles have in common, and each of the others all else of one of
/// them. Within a group everything is as where a group is alone: thread(), sync() and all functions are the group's.
///
/// A buffer is handed from group to group by two mbarriers: `filled` (the producer has written it) and `empty` (the
/// consumers have read it). Each completes one phase per chunk.
#pragma once

#include "../ptx/barrier.h"
#include "../ptx/bulk.h"
#include "move.h"

namespace forge::cuda {

/// The number of this thread's warp group.
FORGE_DEVICE int group() { return static_cast<int>(ptx::group_in_block()); }

/// Of a block's tiles, which the groups from the third on have, that of this group; of others the first one.
FORGE_DEVICE int own_tile() { return group() < 2 ? 0 : group() - 2; }

/// The task of a block that has TILES of them: for each group its own.
template <int TILES>
FORGE_DEVICE Task with_own_tile(Task at) {
    at.tile = TILES * at.tile + own_tile();
    return at;
}

/// A position in a ring of N buffers; `lap` is the phase parity of the current round (a "pipeline state").
template <int N>
struct Turn {
    int at = 0;
    unsigned lap = 0;
    FORGE_DEVICE void next() {
        if (++at == N) at = 0, lap ^= 1u;
    }
    FORGE_DEVICE void skip(int turns) {
        for (int n = 0; n < turns; ++n) next();
    }
};

namespace detail {

FORGE_DEVICE void wait(unsigned barrier, unsigned parity) {
    while (!ptx::barrier_passed(barrier, parity)) {}
}

/// For racecheck, which does not see that `__syncwarp` comes before one lane's arrival (scripts/sanitize-cuda).
#ifdef FORGE_EVERY_LANE_ARRIVES
constexpr int kArrivals = 32;
#else
constexpr int kArrivals = 1;
#endif

/// A warp has done something; all its threads call this.
FORGE_DEVICE void arrive_warp(unsigned barrier) {
    __syncwarp();
    if (lane() < kArrivals) ptx::barrier_arrive(barrier);
}

}  // namespace detail

/// The barriers of N buffers, 4 N floats; WRITERS warps fill each, READERS groups read each.
template <int N, int READERS, int WRITERS = kWarps>
struct Handover {
    unsigned barriers;

    FORGE_DEVICE explicit Handover(float* words) : barriers(ptx::shared_address(words)) {}
    /// By one thread, before all else.
    FORGE_DEVICE void begin() const {
        for (int n = 0; n < N; ++n)
            ptx::barrier_begin(filled(n), WRITERS * detail::kArrivals),
                ptx::barrier_begin(empty(n), READERS * kWarps * detail::kArrivals);
        ptx::barriers_begun();
    }
    FORGE_DEVICE unsigned filled(int n) const { return barriers + 16u * static_cast<unsigned>(n); }
    FORGE_DEVICE unsigned empty(int n) const { return filled(n) + 8u; }

    FORGE_DEVICE void wait_empty(const Turn<N>& t) const {
        detail::wait(empty(t.at), t.lap ^ 1u);
    }  // a fresh barrier lets pass
    FORGE_DEVICE void wait_filled(const Turn<N>& t) const { detail::wait(filled(t.at), t.lap); }
    FORGE_DEVICE void is_filled(const Turn<N>& t) const { detail::arrive_warp(filled(t.at)); }
    FORGE_DEVICE void is_empty(const Turn<N>& t) const { detail::arrive_warp(empty(t.at)); }
};

/// What this thread wrote to shared memory, or had copied there itself, may be handed over to the matrix units.
FORGE_DEVICE void settle() { ptx::fence_async(); }

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
            use(ptx::shared_address(o.data) + (col * O::kRows + row * kPanel) * 2, col, row);
}

template <class O>
FORGE_DEVICE void copy_operand(unsigned filled, const O& o, const Mapped& m, Size first) {
    each_box(o, [&](unsigned shared, int col, int row) {
        ptx::tensor_load(shared, m.map, m.col + col, m.row + static_cast<int>(first) + row, m.head, m.sequence, filled);
    });
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

/// What tensor copies cannot move, by a warp; as start_operand otherwise.
template <class O>
FORGE_DEVICE void start_rows(const O& o, const typename O::T* src, Size row_stride, Size col_stride, int rows) {
    if (detail::in_pieces(src, row_stride, col_stride)) detail::start_pieces<Warp>(o, src, row_stride, rows);
    else detail::move_numbers<Warp>(o, src, row_stride, col_stride, rows);
}

/// Each store is one group, those that threads make an empty one (kernel::Kind::StoresRead).
FORGE_DEVICE void end_of_stores() {
    if (thread() == 0) ptx::bulk_commit();
}

/// As in move.h, or by a copy. The operand's memory may be written again after stores_read().
template <class O>
FORGE_DEVICE void store_operand(bool by_copy, const Mapped& m, Size first, typename O::T* dst, Size row_stride,
                                Size col_stride, const O& o, int rows) {
    if (!by_copy) return store_operand(dst, row_stride, col_stride, o, rows), end_of_stores();
    if (thread() != 0) return;
    each_box(o, [&](unsigned shared, int col, int row) {
        ptx::tensor_store(m.map, m.col + col, m.row + static_cast<int>(first) + row, m.head, m.sequence, shared);
    });
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
    if (by_copy) store_operand(true, m, first, dst, row_stride, col_stride, o, rows);
    else store_operand(dst, row_stride, col_stride, o, rows, cols), end_of_stores();
}

/// Memory that this group's stores read, but for the last PENDING ones, may be written after the group's next barrier.
template <int PENDING = 0>
FORGE_DEVICE void stores_read() {
    if (thread() == 0) ptx::bulk_wait_read<PENDING>();
}

}  // namespace forge::cuda
