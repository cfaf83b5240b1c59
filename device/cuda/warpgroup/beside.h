/// State-free work that runs at the same time as the scan that needs it, on multiprocessors that the scan leaves idle.
/// Each warp group of its blocks processes one (chunk, head) after the other and then sets a flag, a word of global
/// memory per chunk and head, with release semantics; the scan acquires the flag before it reads the chunk's values.
///
/// The scan's blocks can start only when all blocks of this kernel have started and cleared their flags
/// (griddepcontrol). So a block that waits for a flag waits for one that is resident, which rules out deadlock, and
/// never sees a flag that an earlier call has set.
#pragma once

#include "../ptx/overlap.h"
#include "roles.h"

namespace forge::cuda {

/// This warp group's part of its shared memory.
FORGE_DEVICE float* group_scratch(int floats) { return static_cast<float*>(ptx::block_memory()) + group() * floats; }

namespace detail {

/// Of the first `call.common` tasks each warp group of all blocks has a part, of the others each whose block stays.
FORGE_DEVICE int first_common() { return group() * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); }
FORGE_DEVICE int first_staying(const Call& call) {
    const int block = static_cast<int>(blockIdx.x), staying = static_cast<int>(call.staying);
    return block < staying ? static_cast<int>(call.common) + group() * staying + block : static_cast<int>(call.tasks);
}

}  // namespace detail

/// This warp group's first task, of GROUPS in a block, and the one after a task; from call.tasks on there is none.
FORGE_DEVICE int first_task_beside(const Call& call) {
    return detail::first_common() < call.common ? detail::first_common() : detail::first_staying(call);
}
template <int GROUPS>
FORGE_DEVICE int next_task_beside(const Call& call, int task) {
    if (task >= call.common) return task + GROUPS * static_cast<int>(call.staying);
    const int next = task + GROUPS * static_cast<int>(gridDim.x);
    return next < call.common ? next : detail::first_staying(call);
}

/// Tasks of single chunks in the order in which scans ask for them: the first chunk of all sequences, the second ones,
/// … The lengths of packed sequences differ: those are taken one after the other.
FORGE_DEVICE Size in_order_of_scans(const Call& call, Size task, Size chunk_size) {
    if (call.offsets || call.sequences == 1) return task;
    const Size unit = quotient(task, call.heads), head = task - unit * call.heads;
    const Size chunk = quotient(unit, call.sequences), sequence = unit - chunk * call.sequences;
    return (first_block(call, sequence, chunk_size) + chunk) * call.heads + head;
}

namespace detail {

FORGE_DEVICE unsigned* word_of(float* made, Size block) { return reinterpret_cast<unsigned*>(made) + block; }

/// Clears the flags of a group's tasks: from `first` on below `end`, each `step` after the one before.
FORGE_DEVICE void begin_words(const Call& call, float* made, Size chunk_size, int first, int step, Size end) {
#pragma unroll 1
    for (Size task = first + Size{thread()} * step; task < end; task += Size{kThreads} * step)
        *word_of(made, in_order_of_scans(call, task, chunk_size)) = 0;
}

}  // namespace detail

/// Clears the flags of this block's tasks; the scan may start when all blocks have done so. If none stays resident, the
/// scan waits for the end of this kernel instead.
template <int GROUPS>
FORGE_DEVICE void begin_work_beside(const Call& call, float* made, Size chunk_size) {
    if (call.staying > 0) {
        detail::begin_words(call, made, chunk_size, detail::first_common(), GROUPS * static_cast<int>(gridDim.x),
                            call.common);
        detail::begin_words(call, made, chunk_size, detail::first_staying(call),
                            GROUPS * static_cast<int>(call.staying), call.tasks);
        ptx::fence_device();
        __syncthreads();
    }
    ptx::let_next_kernel_start();
}

/// Sets a task's flag, after which the scan may read what the group's threads wrote, and frees the group's shared
/// memory. The releasing store waits for all earlier stores: the last warp does it, as the first one has most to do
/// when the next task begins.
FORGE_DEVICE void is_made(const Call& call, float* made, Size block) {
    sync();
    if (call.staying > 0 && thread() == kThreads - 1) ptx::store_release(detail::word_of(made, block), 1);
}

/// Before the scan's first chunk.
FORGE_DEVICE void begin_beside(const Call& call) {
    if (call.staying == 0) ptx::wait_for_kernel_before();
}

/// Waits for a chunk's flag: then this thread, and copies that it starts, may read the chunk's values.
FORGE_DEVICE void wait_until_made(const Call& call, float* made, Size block) {
    if (call.staying == 0) return;
    while (ptx::load_acquire(detail::word_of(made, block)) != 1) {}
    ptx::fence_async_global();
}

}  // namespace forge::cuda
