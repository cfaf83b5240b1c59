/// A state through the segments of a sequence, where transitions are matrices that act on columns: s' = m s + u, a tile
/// of columns per task. A transition lies together in memory and arrives by one bulk copy, several of them ahead; what
/// is added comes into registers, one segment ahead; the state is in one of two places in shared memory, and its
/// successor goes to the other.
#pragma once

#include "../portable/call.h"
#include "../portable/product.h"
#include "bulk_copies.h"

namespace forge::cuda {

/// What summaries have left of a task's first segment, and where the state before it goes. `forgets`: whether it has no
/// transition, as nothing is left of the state before it; null: all segments have one.
struct SegmentSpills {
    const float *forgets, *inputs, *transitions;
    float* carries;
};

/// The segments of a sequence that take a state on: all but the last one and those that forget it. Each warp finds the
/// same.
class TakingOn {
    const float* forgets_;
    Size heads_, last_, window_ = -kLanes;
    unsigned taking_ = 0;  ///< of the segments from `window_` on, one bit each

    FORGE_DEVICE void look(Size window) {
        const Size n = window + lane();
        window_ = window;
        taking_ = __ballot_sync(kAllLanes, n < last_ && (!forgets_ || number_of(forgets_, n * heads_) == 0.0f));
    }

  public:
    FORGE_DEVICE TakingOn(const Call& call, const Task& at, const float* forgets)
        : forgets_(forgets), heads_(call.heads), last_(at.end - 1) {}

    FORGE_DEVICE bool has(Size n) const { return n < last_; }
    /// The first one from n on, which is not less than in the call before. None: has() says so.
    FORGE_DEVICE Size from(Size n) {
        for (; n < last_; n = window_ + kLanes) {
            if (n >= window_ + kLanes) look(n);
            const unsigned left = taking_ >> (n - window_);
            if (left) return n + __ffs(static_cast<int>(left)) - 1;
        }
        return last_;
    }
};

/// ROWS x COLS of a state, in shared memory with stride LD; in memory rows of a state have MEMORY_LD floats, those of a
/// transition TRANSITION_LD, and a block STATE_FLOATS and TRANSITION_FLOATS.
template <int ROWS, int COLS, int LD, int MEMORY_LD, int STATE_FLOATS, int TRANSITION_LD, int TRANSITION_FLOATS,
          int STAGES, Precision P>
class CarriedColumns {
    static constexpr int kState = ROWS * LD, kTransition = ROWS * TRANSITION_LD, kTall = pieces(ROWS / 16, kWarps);
    using Product = detail::Product<ROWS, COLS, ROWS, TRANSITION_LD, 1, LD, 1, P, kTall, COLS / 8, 4>;

    const Call& call_;
    const Task& at_;
    const SegmentSpills& spills_;
    float* state_;
    float* next_;
    float* transitions_;  ///< so many stages
    unsigned arrived_;    ///< … and a barrier for each
    int stage_ = 0;
    unsigned lap_ = 0;

    FORGE_DEVICE static int first_row() { return warp() * kTall * 16; }
    FORGE_DEVICE float* carry(Size n) const { return spills_.carries + n * call_.heads * STATE_FLOATS; }
    FORGE_DEVICE const float* input(Size n) const { return spills_.inputs + n * call_.heads * STATE_FLOATS; }

    FORGE_DEVICE void ask(Size n, int stage) const {
        if (thread() != 0) return;
        const unsigned arrived = arrived_ + 8u * static_cast<unsigned>(stage);
        ptx::barrier_expect(arrived, 4 * kTransition);
        copy_numbers<kTransition>(arrived, transitions_ + stage * kTransition,
                                  spills_.transitions + n * call_.heads * TRANSITION_FLOATS);
        ptx::barrier_arrive(arrived);
    }

    /// The state after segment n, and before the one that follows.
    FORGE_DEVICE void multiply(Product& sum, Size n) {
        detail::wait(arrived_ + 8u * static_cast<unsigned>(stage_), lap_);
        sum.run(transitions_ + stage_ * kTransition, state_, first_row(), 0, 0, ROWS);
        float* const memory = carry(n + 1);
        sum.each(first_row(), 0, ROWS, COLS, [&](int i, int j, float x, float y) {
            detail::put<Acc::Set>(next_ + i * LD + j, x, y);
            detail::put<Acc::Set>(memory + i * MEMORY_LD + j, x, y);
        });
        float* const before = state_;
        state_ = next_, next_ = before;
    }

  public:
    static constexpr int kFloats = kState + STAGES * kTransition + 2 * STAGES;

    /// `state`: before the first segment. `work`: kFloats of shared memory, 16-byte aligned.
    FORGE_DEVICE CarriedColumns(const Call& call, const Task& at, const SegmentSpills& spills, float* state,
                                float* work)
        : call_(call),
          at_(at),
          spills_(spills),
          state_(state),
          next_(work + STAGES * kTransition),
          transitions_(work),
          arrived_(ptx::shared_address(work + STAGES * kTransition + kState)) {}

    FORGE_DEVICE void go_through_segments() {
        if (thread() == 0) {
            for (int stage = 0; stage < STAGES; ++stage) ptx::barrier_begin(arrived_ + 8u * stage, 1);
            ptx::barriers_begun();
        }
        sync();
        TakingOn asked(call_, at_, spills_.forgets), taken = asked;
        Size ahead = asked.from(0), n = ahead, reached = 0;
        for (int stage = 0; stage < STAGES && asked.has(ahead); ++stage, ahead = asked.from(ahead + 1))
            ask(ahead, stage);
        Product sum;
        if (taken.has(n)) sum.begin(input(n), MEMORY_LD, first_row(), 0);
        copy_tile<ROWS, COLS, MEMORY_LD, LD>(carry(0), state_);
        while (taken.has(n)) {
            if (n != reached) {  // the segment before has forgotten what was: its summary is the state
                sync();
                copy_tile<ROWS, COLS, LD, MEMORY_LD>(state_, input(n - 1));
                sync();
            }
            const Size following = taken.from(n + 1);
            Product next;
            if (taken.has(following)) next.begin(input(following), MEMORY_LD, first_row(), 0);
            multiply(sum, n);
            sync();
            if (asked.has(ahead)) ask(ahead, stage_), ahead = asked.from(ahead + 1);
            if (++stage_ == STAGES) stage_ = 0, lap_ ^= 1u;
            sum = next, reached = n + 1, n = following;
        }
    }
};

}  // namespace forge::cuda
