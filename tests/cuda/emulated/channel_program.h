/// A plan's channel kernels, emitted, compiled for the CPU and called with tensors in its memory, one kernel after the
/// other.
#pragma once

#include "forge/runtime.h"
#include "plan/plan.h"
#include "tests/cuda/emulated/kernels.h"

namespace forge::emulated {

class ChannelProgram {
  public:
    ChannelProgram(const std::string& name, plan::Plan plan);

    [[nodiscard]] const plan::Plan& plan() const { return plan_; }
    /// `blocks`: that take the tiles, or of each cluster. Their order follows from the seed. The workspace is NaN
    /// before.
    void run(Call call, int blocks, unsigned seed) const;

  private:
    plan::Plan plan_;
    Library library_;
};

}  // namespace forge::emulated
