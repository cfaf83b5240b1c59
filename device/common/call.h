/// What a CPU kernel is called with: the caller's tensors with their strides, the sequences, the workspace. Shared by
/// the emitted kernels and the runtime that calls them, so it is plain data with 64-bit sizes. Nothing here owns
/// memory.
#pragma once

#include "tensor.h"

/// A kernel is the only symbol that a compiled library shows.
#define FORGE_KERNEL extern "C" __attribute__((visibility("default")))

namespace forge::device {

struct Call {
    const CallTensor* tensors;
    const float* scalars;
    float* const* spills;           ///< values that pass from kernel to kernel, one block per (chunk or segment, head)
    const Size* start;              ///< per sequence: its first token in packed tensors, else 0
    const Size* tokens;             ///< per sequence: its length
    Size stretch_row, stretch_end;  ///< what is done of every sequence: all of it, or these tokens, whole chunks
    const int* scan_sequence;       ///< per sequence of which something is to be done: its number
    const Size* first_chunk;        ///< per sequence: the number of chunks of sequences before it in this stretch
    const int* chunk_sequence;      ///< per chunk of the stretch: its sequence
    const Size* first_segment;      ///< per sequence: the number of segments before it; one more at the end
    const int* segment_sequence;    ///< per segment: its sequence
    Size segment_rows;              ///< tokens per segment
    Size sequences, heads, tiles;
    StateSlots slots;
    int every_summary;  ///< whether the last segments of sequences are summarised too: of ranks
};

/// The slot of sequence n in a pool of states.
inline Size slot_of(const void* slots, int wide, Size n) {
    return !slots ? n : wide ? static_cast<const long long*>(slots)[n] : static_cast<const int*>(slots)[n];
}

/// One task per (sequence, head, tile), tiles fastest: all chunks of a sequence, or of a stretch of it, in order.
inline Task scan_task(const Call& call, Size index) {
    const Size tile = index % call.tiles, head = index / call.tiles % call.heads,
               n = call.scan_sequence[index / call.tiles / call.heads];
    const Size tokens = call.tokens[n];
    const bool last = tokens <= call.stretch_end;
    return {n,
            head,
            tile,
            call.stretch_row,
            last ? tokens : call.stretch_end,
            tokens,
            call.first_chunk[n] * call.heads + head,
            0,
            last};
}

/// One task per (chunk, head, tile), tiles fastest.
inline Task chunk_task(const Call& call, Size index, Size chunk_size) {
    const Size tile = index % call.tiles, head = index / call.tiles % call.heads,
               chunk = index / call.tiles / call.heads;
    const Size n = call.chunk_sequence[chunk], row = call.stretch_row + (chunk - call.first_chunk[n]) * chunk_size;
    return {n, head, tile, row, row + chunk_size, call.tokens[n], chunk * call.heads + head, 0, true};
}

/// One task per (segment, head, tile), tiles fastest: the chunks of a segment in order.
inline Task segment_task(const Call& call, Size index, Size chunk_size) {
    const Size tile = index % call.tiles, head = index / call.tiles % call.heads,
               segment = index / call.tiles / call.heads;
    const Size n = call.segment_sequence[segment], row = (segment - call.first_segment[n]) * call.segment_rows;
    const Size left = call.tokens[n] - row, rows = left < call.segment_rows ? left : call.segment_rows;
    return {n,
            head,
            tile,
            row,
            row + rows,
            call.tokens[n],
            (call.first_chunk[n] + row / chunk_size) * call.heads + head,
            segment * call.heads + head,
            segment + 1 == call.first_segment[n + 1]};
}

/// One task per (sequence, head, tile): all segments of a sequence in order.
inline Task carry_task(const Call& call, Size index) {
    const Size tile = index % call.tiles, head = index / call.tiles % call.heads, n = index / call.tiles / call.heads;
    return {n,
            head,
            tile,
            0,
            call.first_segment[n + 1] - call.first_segment[n],
            call.tokens[n],
            call.first_segment[n] * call.heads + head,
            0,
            true};
}

/// The head's first row of a sequence in a token tensor (`factor` rows per token), of a state, or of a per-head input.
template <class T>
inline T* token_rows(const Call& call, int tensor, const Task& at, Size factor = 1) {
    const CallTensor& t = call.tensors[tensor];
    return static_cast<T*>(t.data) + at.sequence * t.sequence + call.start[at.sequence] * factor * t.token +
           at.head / t.group * t.head;
}

inline bool is_skipped(const Call& call, Size n) {
    return slot_of(call.slots.initial, call.slots.wide, n) < 0 || slot_of(call.slots.final, call.slots.wide, n) < 0;
}

/// A sequence's state in the memory of the caller; null: none is given or wanted, or the sequence is skipped.
template <class T>
inline T* state_block(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    const bool read = IsRead<T>::value;
    if (!t.data || is_skipped(call, at.sequence)) return nullptr;
    if (read && call.slots.has_initial && !call.slots.has_initial[at.sequence]) return nullptr;
    const Size slot = slot_of(read ? call.slots.initial : call.slots.final, call.slots.wide, at.sequence);
    return static_cast<T*>(t.data) + slot * t.sequence + at.head * t.head;
}

/// The chunks of sequences packed before the task's, whatever their slots.
inline Size chunks_packed_before(const Call& call, const Task& at, Size chunk_size) {
    Size chunks = 0;
    for (Size n = 0; n < at.sequence; ++n) chunks += (call.start[n + 1] - call.start[n] + chunk_size - 1) / chunk_size;
    return chunks;
}

/// A state before a chunk, of which the tensor has `group` per sequence, or of all packed ones; null: none, or it is
/// not wanted.
inline float* chunk_state(const Call& call, int tensor, const Task& at, Size chunk) {
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
inline T* last_rows(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    if (!t.data) return nullptr;
    Task own = at;
    own.head = at.head / t.group;
    return state_block<T>(call, tensor, own);
}

/// One task per (sequence, head): its end, after all kernels.
inline Task end_task(const Call& call, Size index) {
    const Size n = index / call.heads;
    return {n, index % call.heads, 0, 0, call.tokens[n], call.tokens[n], 0, 0, true};
}

template <class T>
inline T* head_block(const Call& call, int tensor, const Task& at) {
    const CallTensor& t = call.tensors[tensor];
    return static_cast<T*>(t.data) + at.head / t.group * t.head;
}

}  // namespace forge::device
