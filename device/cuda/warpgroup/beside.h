/// Work ahead of a scan that runs beside it, on other multiprocessors. Each warp group of its blocks takes one chunk
/// and head after the other, and says in a word of global memory that what the scan wants of it is there.
///
/// The scan's blocks may start once all blocks of the work ahead have begun (griddepcontrol): so whoever waits for a
/// word waits for threads that run, and finds none that an earlier call has left.
#pragma once

#include "../ptx/overlap.h"
#include "roles.h"

namespace forge::cuda {

/// This warp group's part of its shared memory.
FORGE_DEVICE float* group_scratch(int floats) { return static_cast<float*>(ptx::block_memory()) + group() * floats; }

/// The n-th task of this warp group, of GROUPS in a block: of the first `call.common` tasks a part of all groups', of
/// the others a part of theirs whose blocks stay. From call.tasks on there is none. Worked out anew for each task:
/// registers are scarce.
template <int GROUPS>
FORGE_DEVICE int task_beside(const Call& call, int n) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x),
              tasks = static_cast<int>(call.tasks);
    const int common = static_cast<int>(call.common), staying = static_cast<int>(call.staying);
    const int first = group() * blocks + block, step = GROUPS * blocks,
              count = first < common ? (common - first + step - 1) / step : 0;
    if (n < count) return first + n * step;
    return block < staying ? common + group() * staying + block + (n - count) * GROUPS * staying : tasks;
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

}  // namespace detail

/// Nothing of this block's is made; the scan may start when all blocks have said so. If none stays, it waits for their
/// end instead.
template <int GROUPS>
FORGE_DEVICE void begin_work_beside(const Call& call, float* made, Size chunk_size) {
    if (call.staying > 0) {
#pragma unroll 1
        for (int n = thread(); task_beside<GROUPS>(call, n) < call.tasks; n += kThreads)
            *detail::word_of(made, in_order_of_scans(call, task_beside<GROUPS>(call, n), chunk_size)) = 0;
        ptx::fence_device();
        __syncthreads();
    }
    ptx::let_next_kernel_start();
}

/// What the group's threads wrote to global memory is there, and its shared memory free.
FORGE_DEVICE void is_made(const Call& call, float* made, Size block) {
    sync();
    if (call.staying > 0 && thread() == 0) ptx::store_release(detail::word_of(made, block), 1);
}

/// Before the scan's first chunk.
FORGE_DEVICE void begin_beside(const Call& call) {
    if (call.staying == 0) ptx::wait_for_kernel_before();
}

/// Then this thread, and copies that it starts, may read it.
FORGE_DEVICE void wait_until_made(const Call& call, float* made, Size block) {
    if (call.staying == 0) return;
    while (ptx::load_acquire(detail::word_of(made, block)) != 1) {}
    ptx::fence_async_global();
}

}  // namespace forge::cuda
