/// What kernels whose threads hold states (tile/held.h) do with those in memory: ask for them before anything else,
/// take them when they have come and, if Schedule::states_ahead, ask for those of the block's next task.
#pragma once

#include <vector>

#include "emit/transfers.h"

namespace forge::emit {

class HeldStates {
  public:
    HeldStates(Context& context, const Transfers& transfers);

    void expect() const;        ///< those of the block's first task, before the kernel ahead has ended
    void ask();                 ///< for those of the block's only task
    void declare() const;       ///< places for those of the next one of several, and how they are asked for
    void ask_for_next() const;  ///< for those of `next`
    /// Those of this task, which have been asked for, before those of the next one are.
    void take();

  private:
    [[nodiscard]] std::string coming(ir::ValueId v) const;  ///< the name of what is on its way
    [[nodiscard]] std::int64_t place(ir::ValueId v) const;  ///< where in shared memory it comes to
    [[nodiscard]] int initial_of(ir::ValueId v) const;      ///< the call's tensor
    void declare(ir::ValueId v) const;
    void ask_for(ir::ValueId v) const;
    void take(ir::ValueId v);
    void ask_for_all(const char* line) const;

    Context& c_;
    const Transfers& transfers_;
    std::vector<ir::ValueId> states_;
};

}  // namespace forge::emit
