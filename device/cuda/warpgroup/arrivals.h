/// The inputs of a task of a single chunk, which arrive in groups. What the hardware can copy one thread asks for, and
/// the copies of a group report to a barrier of its own; all else threads copy themselves, as in move.h.
#pragma once

#include "bulk_copies.h"
#include "kept_rows.h"

namespace forge::cuda {

/// A token tensor that has a map: its place in the call, its rows per token, and the columns that a tile has; 0: all.
struct BoxOf {
    int tensor, per_token = 1, part = 0;
};

/// kept[4 n]: where the task's boxes of tensors[n] begin. A barrier follows.
template <int N>
FORGE_DEVICE void keep_boxes(const Call& call, const Task& at, const BoxOf (&tensors)[N], float* kept) {
    static_assert(N <= kThreads);
    if (thread() >= N) return;
    const BoxOf of = tensors[thread()];
    int* const box = reinterpret_cast<int*>(kept) + 4 * thread();
    box[0] = static_cast<int>(at.tile) * of.part, box[1] = static_cast<int>(at.start) * of.per_token;
    box[2] = static_cast<int>(quotient(at.head, call.tensors[of.tensor].group));
    box[3] = call.offsets ? 0 : static_cast<int>(at.sequence);
}

/// Those of one tensor; they are read where a copy is asked for.
struct KeptBoxes {
    const void* map;
    const float* kept;
    FORGE_DEVICE Mapped at(int column) const { return {map, reinterpret_cast<const int*>(kept), column}; }
};

/// The barriers of so many groups, 2 GROUPS floats; each is used once.
template <int GROUPS>
class Arrivals {
    unsigned barriers_;
    int started_ = 0, arrived_ = 0;  ///< groups

    FORGE_DEVICE unsigned barrier(int group) const { return barriers_ + 8u * static_cast<unsigned>(group); }

  public:
    /// A barrier follows.
    FORGE_DEVICE explicit Arrivals(float* words) : barriers_(ptx::shared_address(words)) {
        if (thread() != 0) return;
        for (int n = 0; n < GROUPS; ++n) ptx::barrier_begin(barrier(n), 1);
        ptx::barriers_begun();
    }

    /// By one thread: so many bytes come with the next group, and report to this barrier.
    FORGE_DEVICE unsigned expect(unsigned bytes) const {
        ptx::barrier_expect(barrier(started_), bytes);
        return barrier(started_);
    }

    /// All copies since the last call are one group.
    FORGE_DEVICE void started() {
        if (thread() == 0) ptx::barrier_arrive(barrier(started_));
        ++started_;
        cuda::started();
    }

    /// As arrive() of move.h.
    template <int PENDING>
    FORGE_DEVICE void arrive() {
#pragma unroll
        for (; arrived_ < started_ - PENDING; ++arrived_) detail::wait(barrier(arrived_), 0);
        cuda::arrive<PENDING>();
    }
};

}  // namespace forge::cuda
