/// What a kernel is launched with, by value, and the task that a block of threads finds for itself in it.
///
/// The lengths of packed sequences are read on the device, so that a captured graph can be replayed with others. The
/// grid and the workspace come from upper bounds: with `size` rows to a chunk (or segment), sequence n of N owns the
/// blocks from start(n) / size + n on. No two sequences share one, and there are T / size + N of them; those that no
/// token falls into are idle.
#pragma once

#include "../../common/tensor.h"

#ifdef __CUDACC__
#include "thread.h"
#ifndef FORGE_RESIDENT
#define FORGE_RESIDENT 1  // blocks per multiprocessor, for which registers must do
#endif
/// TASKS: how many share a multiprocessor.
#define FORGE_KERNEL_TASKS(TASKS) extern "C" __global__ __launch_bounds__(forge::cuda::kThreads, TASKS)
#define FORGE_KERNEL extern "C" __global__ __launch_bounds__(forge::cuda::kThreads, FORGE_RESIDENT)
/// GROUPS of kThreads in a block, and BLOCKS that share a multiprocessor.
#define FORGE_KERNEL_OF(GROUPS, BLOCKS) \
    extern "C" __global__ __launch_bounds__((GROUPS) * forge::cuda::kThreads, BLOCKS)
#endif

namespace forge::cuda {

using device::CallTensor;
using device::Size;

// A kernel with more than 30 tensors or so takes more than 4 KB of arguments, which CUDA allows from 12.1 on.
constexpr int kMaxTensors = 96, kMaxSpills = 96, kMaxScalars = 32, kMaxMaps = 8;

// How many a kernel takes, which says so: it is then started sooner.
#if defined(FORGE_TENSORS) && !defined(FORGE_EMULATED)
constexpr int kTensorsOfKernel = FORGE_TENSORS;
#else
constexpr int kTensorsOfKernel = kMaxTensors;
#endif

/// Of a scan in segments that come one after the other (warpgroup/relay.h): bytes of `exchange` ahead of its tasks'
/// words.
constexpr int kRelayHeader = 16;

struct Call {
    float* spills[kMaxSpills];
    float scalars[kMaxScalars];
    const void*
        offsets;  ///< packed sequences: N + 1 token offsets, i32 or i64; null: all sequences have `tokens` tokens
    Size offsets_stride;
    Size tokens;        ///< of each sequence, or of all packed ones
    Size chunk_rows;    ///< tokens per chunk
    Size segment_rows;  ///< tokens per segment
    Size summary_rows;  ///< tokens per summary: those of a segment, or a part of them
    Size sequences, heads, tiles;
    int wide_offsets;   ///< whether offsets are i64
    int every_summary;  ///< whether the last segments of sequences are summarised too: of ranks
    int in_place;       ///< whether some final state may lie where its initial one does
    Size tasks;         ///< of this kernel
    /// Work beside a scan: the first `common` tasks are shared by all blocks, the others by the first `staying` blocks.
    Size common, staying;
    device::StateSlots slots;
    void* exchange;                        ///< where its tasks leave each other results; all bits 1 when it starts
    CallTensor tensors[kTensorsOfKernel];  ///< last: of the launch's, a kernel gets as many as it takes
};

/// Token tensors as the hardware's tensor copies take them (CUtensorMap): columns, rows of the token axis, heads,
/// sequences; boxes of 64 columns and 64 rows, in the 128-byte swizzle. An argument of its own.
struct TensorMaps {
    alignas(64) unsigned long long map[kMaxMaps][16];
    unsigned usable;  ///< whether all tensors can be described so
};

#ifdef __CUDACC__

/// The part of the work that one block of threads does.
struct Task : device::Task {
    Size start;    ///< the sequence's first token in packed tensors, else 0
    bool idle;     ///< nothing to do: a block that was set apart for tokens that are not there
    bool forgets;  ///< of a summary: nothing is left of the state before it
};

/// a / b, both below 2^32 (DeviceLayout sees to it) and b often 1: the quotient of 64-bit numbers takes a hundred
/// instructions, and registers that kernels do not have.
FORGE_DEVICE Size quotient(Size a, Size b) {
    return b == 1 ? a : static_cast<Size>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
}

/// Which (block, head, tile) a task is, tiles fastest.
struct TaskNumber {
    Size block, head, tile;
    FORGE_DEVICE TaskNumber(const Call& call, Size index) {
        const auto row = static_cast<unsigned>(quotient(index, call.tiles)),
                   of_block = static_cast<unsigned>(quotient(row, call.heads));
        block = of_block;
        tile = static_cast<unsigned>(index) - row * static_cast<unsigned>(call.tiles);
        head = row - of_block * static_cast<unsigned>(call.heads);
    }
};

FORGE_DEVICE Size offset(const Call& call, Size n) {
    return call.wide_offsets ? static_cast<const long long*>(call.offsets)[n * call.offsets_stride]
                             : static_cast<const int*>(call.offsets)[n * call.offsets_stride];
}

/// The slot of sequence n in a pool of states.
FORGE_DEVICE Size slot_of(const void* slots, int wide, Size n) {
    return !slots ? n : wide ? static_cast<const long long*>(slots)[n] : static_cast<const int*>(slots)[n];
}

FORGE_DEVICE bool is_skipped(const Call& call, Size n) {
    return slot_of(call.slots.initial, call.slots.wide, n) < 0 || slot_of(call.slots.final, call.slots.wide, n) < 0;
}

/// The first block of a sequence.
FORGE_DEVICE Size first_block(const Call& call, Size n, Size size) {
    if (call.offsets) return quotient(offset(call, n), size) + n;
    const Size blocks = quotient(call.tokens + size - 1, size);
    return n * (blocks > 1 ? blocks : 1);
}

/// The sequence that a block belongs to: the last one whose first block is not beyond it.
FORGE_DEVICE Size sequence_of(const Call& call, Size block, Size size) {
    Size from = 0, to = call.sequences;
    while (to - from > 1) {
        const Size middle = (from + to) / 2;
        if (first_block(call, middle, size) <= block) from = middle;
        else to = middle;
    }
    return from;
}

/// A task of sequence n, its rows not yet set.
FORGE_DEVICE Task sequence_task(const Call& call, Size n, Size head, Size tile, bool skipped) {
    Task at{};
    at.sequence = n, at.head = head, at.tile = tile, at.last = true;
    at.start = call.offsets ? offset(call, n) : 0;
    at.tokens = skipped ? 0 : call.offsets ? offset(call, n + 1) - at.start : call.tokens;
    return at;
}
FORGE_DEVICE Task sequence_task(const Call& call, Size n, Size head, Size tile) {
    return sequence_task(call, n, head, tile, is_skipped(call, n));
}

/// One block of threads per (sequence, head, tile), tiles fastest: all chunks of a sequence in order.
FORGE_DEVICE Task scan_task(const Call& call, Size index) {
    const TaskNumber number(call, index);
    Task at = sequence_task(call, number.block, number.head, number.tile);
    at.end = at.tokens;
    at.block = first_block(call, at.sequence, call.chunk_rows) * call.heads + at.head;
    return at;
}

/// One per (chunk, head, tile), tiles fastest.
FORGE_DEVICE Task chunk_task(const Call& call, Size index, Size chunk_size) {
    const TaskNumber number(call, index);
    const Size block = number.block, n = sequence_of(call, block, chunk_size);
    Task at = sequence_task(call, n, number.head, number.tile);
    at.row = (block - first_block(call, n, chunk_size)) * chunk_size;
    at.end = at.row + chunk_size;
    at.block = block * call.heads + at.head;
    at.idle = at.row >= at.tokens;
    return at;
}

/// The head's first summary of a sequence; the next one is call.heads further.
FORGE_DEVICE Size first_summary(const Call& call, const Task& at) {
    return first_block(call, at.sequence, call.summary_rows) * call.heads + at.head;
}

/// One per (part of `rows` tokens, head, tile), tiles fastest: the chunks of a part in order. An empty sequence has one
/// part.
FORGE_DEVICE Task part_task(const Call& call, Size index, Size chunk_size, Size rows) {
    const TaskNumber number(call, index);
    const Size part = number.block, n = sequence_of(call, part, rows);
    Task at = sequence_task(call, n, number.head, number.tile);
    at.row = (part - first_block(call, n, rows)) * rows;
    at.idle = at.row > 0 && at.row >= at.tokens;
    at.end = at.row + rows < at.tokens ? at.row + rows : at.tokens;
    at.block = (first_block(call, n, chunk_size) + quotient(at.row, chunk_size)) * call.heads + at.head;
    at.segment = first_summary(call, at) + quotient(at.row, call.summary_rows) * call.heads;
    return at;
}

/// A segment; its number is that of its first summary.
FORGE_DEVICE Task segment_task(const Call& call, Size index, Size chunk_size) {
    Task at = part_task(call, index, chunk_size, call.segment_rows);
    at.last = at.end == at.tokens;
    return at;
}

/// What is summarised; no kernel reads the summaries of the last segment, but ranks do.
FORGE_DEVICE Task summary_task(const Call& call, Size index, Size chunk_size) {
    Task at = part_task(call, index, chunk_size, call.summary_rows);
    at.last = (quotient(at.row, call.segment_rows) + 1) * call.segment_rows >= at.tokens;
    return at;
}

/// A spill of one number per chunk or segment.
constexpr int kNumberFloats = 4;
FORGE_DEVICE float number_of(const float* numbers, Size block) { return numbers[block * kNumberFloats]; }

/// A summary that begins late where nothing is left of the state before it: as few chunks before its end as it takes
/// for the norm of their transitions, whose logarithms the chunks have, to fall below float's last bit. Each warp finds
/// the same.
FORGE_DEVICE Task forgetting(const Call& call, Task at, const float* log_norms, int chunk_size) {
    constexpr float kLastBit = -16.6355f;  // log(2^-24)
    if (at.idle) return at;
    const int chunks = static_cast<int>((at.end - at.row + chunk_size - 1) / chunk_size);
    float sum = 0.0f;
    for (int later = 0; later < chunks; later += kLanes) {
        const int chunk = chunks - 1 - later - lane();
        float x = chunk < 0 ? 0.0f : number_of(log_norms, at.block + chunk * call.heads);
        for (int n = 1; n < kLanes; n *= 2) {
            const float before = __shfl_up_sync(kAllLanes, x, n);
            if (lane() >= n) x += before;
        }
        const unsigned enough = __ballot_sync(kAllLanes, chunk >= 0 && sum + x < kLastBit);  // never of NaN
        if (enough) {
            const int first = chunks - later - __ffs(static_cast<int>(enough));
            at.forgets = true;
            at.row += Size{first} * chunk_size, at.block += Size{first} * call.heads;
            return at;
        }
        sum += __shfl_sync(kAllLanes, x, kLanes - 1);
    }
    return at;
}

/// Whether a segment starts from the summary of the one before it alone.
FORGE_DEVICE bool starts_anew(const Call& call, const float* forgets, Size segment, bool is_first) {
    return !is_first && number_of(forgets, segment - call.heads) != 0.0f;
}

/// Of a task that makes columns of a segment's transition, those after the tiles of states: the first one of them.
constexpr int kNoColumn = 1 << 20;
FORGE_DEVICE int transition_column(const Task& at, int tiles, int width) {
    return at.tile < tiles ? kNoColumn : (static_cast<int>(at.tile) - tiles) * width;
}

/// One per (sequence, head, tile): all segments of a sequence in order.
FORGE_DEVICE Task carry_task(const Call& call, Size index) {
    const TaskNumber number(call, index);
    Task at = sequence_task(call, number.block, number.head, number.tile);
    const Size segments = quotient(at.tokens + call.segment_rows - 1, call.segment_rows);
    at.end = segments > 1 ? segments : 1;
    at.block = first_summary(call, at);
    return at;
}

/// The head's first row of a sequence in a token tensor (`factor` rows per token), of a state, or of a per-head input.
template <class T>
FORGE_DEVICE T* token_rows(const Call& call, int tensor, const Task& at, Size factor = 1) {
    const CallTensor& t = call.tensors[tensor];
    return static_cast<T*>(t.data) + at.sequence * t.sequence + at.start * factor * t.token +
           quotient(at.head, t.group) * t.head;
}

/// A sequence's state in the memory of the caller; null: none is given or wanted, or the sequence is skipped.
template <class T>
FORGE_DEVICE T* state_block(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    const bool read = device::IsRead<T>::value;
    if (!t.data || is_skipped(call, at.sequence)) return nullptr;
    if (read && call.slots.has_initial && !call.slots.has_initial[at.sequence]) return nullptr;
    const Size slot = slot_of(read ? call.slots.initial : call.slots.final, call.slots.wide, at.sequence);
    return static_cast<T*>(t.data) + slot * t.sequence + at.head * t.head;
}

/// The chunks of sequences packed before the task's, counted by the lanes of a warp.
FORGE_DEVICE Size chunks_packed_before(const Call& call, const Task& at, Size chunk_size) {
    if (!call.offsets) return 0;
    int chunks = 0;
    for (Size n = lane(); n < at.sequence; n += kLanes)
        chunks += static_cast<int>((offset(call, n + 1) - offset(call, n) + chunk_size - 1) / chunk_size);
    for (int n = kLanes / 2; n > 0; n /= 2) chunks += __shfl_xor_sync(kAllLanes, chunks, n);
    return chunks;
}

/// A state before a chunk, of which the tensor has `group` per sequence, or of all packed ones; null: none, or it is
/// not wanted.
FORGE_DEVICE float* chunk_state(const Call& call, int tensor, const Task& at, Size chunk) {
    const CallTensor& t = call.tensors[tensor];
    if (!t.data || chunk >= t.group) return nullptr;
    float* const first = static_cast<float*>(t.data) + at.head * t.head;
    if (!call.slots.chunks) return first + at.sequence * t.sequence + chunk * t.token;
    const Size slot = slot_of(call.slots.chunks, call.slots.wide_chunks, at.sequence * t.sequence + chunk);
    return slot < 0 ? nullptr : first + slot * t.token;
}

/// The last rows of a token input that an earlier call has seen, or those for a later one: as a state, but with the
/// input's own heads.
template <class T>
FORGE_DEVICE T* last_rows(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    if (!t.data) return nullptr;
    Task own = at;
    own.head = quotient(at.head, t.group);
    return state_block<T>(call, tensor, own);
}

/// One block of threads per (sequence, head): its end, after all kernels.
FORGE_DEVICE Task end_task(const Call& call, Size index) {
    const Size n = quotient(index, call.heads);
    return sequence_task(call, n, index - n * call.heads, 0);
}

template <class T>
FORGE_DEVICE T* head_block(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    return static_cast<T*>(t.data) + quotient(at.head, t.group) * t.head;
}

#endif

}  // namespace forge::cuda
