/// A plan's kernels on this machine's CPU: functions of a loaded library, run on threads, chunk range by chunk range
/// (runtime/stretches.h).
#pragma once

#include "device/common/call.h"
#include "runtime/binding.h"
#include "runtime/executable.h"

namespace forge::runtime {

class CpuKernels : public Kernels {
  public:
    using Function = void (*)(const device::Call&, device::Size task, float* scratch);

    /// One per kernel of the plan, and the one that stores last rows, if the plan has any; `library` is what they lie
    /// in. None: they are not loaded, and calls are refused. The plan must outlive this.
    CpuKernels(const plan::Plan& plan, std::vector<Function> kernels, Function last_rows,
               std::shared_ptr<const void> library, int threads)
        : plan_(plan),
          kernels_(std::move(kernels)),
          last_rows_(last_rows),
          library_(std::move(library)),
          threads_(threads) {}

    void run(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

  private:
    struct Workspace;
    [[nodiscard]] Workspace lay_out(const Bound& bound) const;
    void launch(const Bound& bound, const Workspace& workspace, char* memory, const ParallelFor& threads) const;

    const plan::Plan& plan_;
    std::vector<Function> kernels_;
    Function last_rows_;
    std::shared_ptr<const void> library_;
    int threads_;
};

}  // namespace forge::runtime
