/// A plan's kernels for a GPU, emitted, compiled for the CPU and called with tensors in its memory, one kernel after
/// the other as a stream would. Tensor maps are those of the driver of tests/launch/recorder, which this process then
/// has.
#pragma once

#include <functional>

#include "forge/runtime.h"
#include "plan/plan.h"
#include "runtime/callable.h"
#include "tests/cuda/emulated/kernels.h"

namespace forge::emulated {

/// So that ptx/thread.h, which knows blocks of any kernel, finds the thread in `run_warps`.
void connect(const Library& library);

class Program {
  public:
    /// `edit` may change the emitted source.
    Program(
        const std::string& name, plan::Plan plan, const std::function<void(std::string&)>& edit = [](std::string&) {});

    [[nodiscard]] const plan::Plan& plan() const { return plan_; }
    /// Of tasks and threads in an order that the seed decides. The workspace is NaN before. On one multiprocessor work
    /// beside a scan has several tasks for each warp group. `after` sees the call with its workspace.
    void run(Call call, unsigned seed, int multiprocessors = 1,
             const std::function<void(const runtime::Callable&, const Call&)>& after = {}) const;

  private:
    plan::Plan plan_;
    Library library_;
};

}  // namespace forge::emulated
