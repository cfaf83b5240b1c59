/// A scan whose sequences are cut into segments that are tasks of their own, each of which starts from the states that
/// the one before leaves it (Loop::Relay). Nothing is computed twice, and a last round of few tasks takes as long as
/// their segments. What call.exchange begins with counts the blocks that have started, and a word per task says when
/// its states are there.
#pragma once

#include "../ptx/exchange.h"
#include "../ptx/overlap.h"
#include "roles.h"

namespace forge::cuda {

namespace detail {

/// Which segment comes as so many others have: the first ones of all sequences, then the second ones, … All lanes of a
/// warp look for it, as packed sequences have different numbers of them.
FORGE_DEVICE Size segment_in_turn(const Call& call, Size turn) {
    const auto first = [&](Size n) { return first_block(call, n, call.segment_rows); };
    if (!call.offsets) {
        const Size segment = quotient(turn, call.sequences);
        return first(turn - segment * call.sequences) + segment;
    }
    for (Size segment = 0;; ++segment)
        for (Size n = 0; n < call.sequences; n += kLanes) {
            const Size own = n + lane();
            const unsigned have =
                __ballot_sync(kAllLanes, own < call.sequences && first(own + 1) - first(own) > segment);
            const unsigned before = have & ((1u << lane()) - 1), mine = have >> lane() & 1u;
            const unsigned found = __ballot_sync(kAllLanes, mine && __popc(before) == turn);
            if (found) return first(n + __ffs(static_cast<int>(found)) - 1) + segment;
            turn -= __popc(have);
        }
}

}  // namespace detail

/// This block's task. Blocks are counted as they start, so that one that waits for a segment before waits for a block
/// that is resident or has ended, whatever the order in which they start. All threads of the block call this; one warp
/// looks for it.
FORGE_DEVICE Size next_of_relay(const Call& call, float* scratch) {
    auto* const found = reinterpret_cast<unsigned*>(scratch);
    if (group() == 0 && warp() == 0) {
        unsigned number = 0;
        if (lane() == 0) number = ptx::add_relaxed(static_cast<unsigned*>(call.exchange), 1) + 1;
        number = __shfl_sync(kAllLanes, number, 0);
        const Size together = call.heads * call.tiles, turn = quotient(number, together);
        const Size task = number + (detail::segment_in_turn(call, turn) - turn) * together;
        if (lane() == 0) *found = static_cast<unsigned>(task);
    }
    __syncthreads();
    const Size task = *found;
    __syncthreads();
    return task;
}

namespace detail {

FORGE_DEVICE unsigned* word_of_relay(const Call& call, const Task& at, Size segment, int tiles) {
    return reinterpret_cast<unsigned*>(static_cast<char*>(call.exchange) + kRelayHeader) + segment * tiles + at.tile;
}

}  // namespace detail

/// Waits until the segment before has left its states of the group's own tile, of so many.
FORGE_DEVICE void wait_for_segment_before(const Call& call, const Task& at, int tiles) {
    if (thread() == 0) {
        const unsigned* const word = detail::word_of_relay(call, at, at.segment, tiles);
        while (ptx::load_acquire(word) != 1) {}
    }
    sync();
}

namespace detail {

/// Of a fragment's register n.
FORGE_DEVICE float* place_in_relay(float* states, int n) { return states + n * kThreads + thread(); }

}  // namespace detail

/// States pass from a group to one that holds them alike, register by register.
template <int M, int N>
FORGE_DEVICE void take_over(Fragment<M, N>& f, float* states) {
#pragma unroll
    for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) f.x[n] = *detail::place_in_relay(states, n);
}
template <int M, int N>
FORGE_DEVICE void leave(float* states, const Fragment<M, N>& f) {
#pragma unroll
    for (int n = 0; n < Fragment<M, N>::kRegisters; ++n) *detail::place_in_relay(states, n) = f.x[n];
}

/// The next segment may read what the group's threads wrote.
FORGE_DEVICE void pass_on(const Call& call, const Task& at, int tiles) {
    sync();
    if (thread() == 0) ptx::store_release(detail::word_of_relay(call, at, at.segment + call.heads, tiles), 1);
}

}  // namespace forge::cuda
