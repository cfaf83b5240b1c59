/// Several warp groups that share a task (FORGE_GROUPS): the first is the producer of the chunks' inputs, each of its
/// warps of those of one stage. Either the second computes the carried states and the others outputs, each of every
/// other chunk; or the second computes what several tiles have in common, if anything is, and each of the others all
/// else of one of them. Within a group everything is as where a group is alone: thread(), sync() and all functions are
/// the group's.
///
/// A buffer is handed from group to group by two mbarriers: `filled` (the producer has written it) and `empty` (the
/// consumers have read it). Each completes one phase per chunk.
#pragma once

#include "bulk_copies.h"

namespace forge::cuda {

/// The number of this thread's warp group.
FORGE_DEVICE int group() { return static_cast<int>(ptx::group_in_block()); }

/// Of a block's tiles, which the groups from FIRST on have, that of this group; of others the first one.
template <int FIRST>
FORGE_DEVICE int own_tile() {
    return group() < FIRST ? 0 : group() - FIRST;
}

/// The task of a block that has TILES of them: for each group its own.
template <int TILES, int FIRST>
FORGE_DEVICE Task with_own_tile(Task at) {
    at.tile = TILES * at.tile + own_tile<FIRST>();
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

    /// By one thread: so many bytes come to buffer n beside what threads write, and report to this barrier.
    FORGE_DEVICE unsigned expect(int n, unsigned bytes) const {
        ptx::barrier_expect(filled(n), bytes);
        return filled(n);
    }

    FORGE_DEVICE void wait_empty(const Turn<N>& t) const {
        detail::wait(empty(t.at), t.lap ^ 1u);
    }  // a fresh barrier lets pass
    FORGE_DEVICE void wait_filled(const Turn<N>& t) const { detail::wait(filled(t.at), t.lap); }
    FORGE_DEVICE void is_filled(const Turn<N>& t) const { detail::arrive_warp(filled(t.at)); }
    FORGE_DEVICE void is_empty(const Turn<N>& t) const { detail::arrive_warp(empty(t.at)); }
};

/// What this thread wrote to shared memory, or had copied there itself, may be handed over to the matrix units.
FORGE_DEVICE void settle() { ptx::fence_async(); }

}  // namespace forge::cuda
