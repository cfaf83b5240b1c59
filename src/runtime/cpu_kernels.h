/// Kernels on this machine's CPU: functions of a loaded library, run on threads, chunk range by chunk range
/// (runtime/stretches.h).
#pragma once

#include "device/common/call.h"
#include "runtime/binding.h"
#include "runtime/kernels.h"

namespace forge::runtime {

/// Of a workspace on the CPU.
inline constexpr std::size_t kHostAlignment = 64;

/// Why kernels that were compiled with load = false are not to be called.
inline constexpr const char* kNotLoaded = "compiled with load = false: expected a variant whose kernels are loaded";

class CpuKernels : public Kernels {
  public:
    using Function = void (*)(const device::Call&, device::Size task, float* scratch);

    /// One per kernel of the callable, and the one that stores last rows, if there is any; `library` is what they lie
    /// in. None: they are not loaded, and calls are refused. The callable must outlive this.
    CpuKernels(const Callable& callable, std::vector<Function> kernels, Function last_rows,
               std::shared_ptr<const void> library, int threads)
        : callable_(callable),
          kernels_(std::move(kernels)),
          last_rows_(last_rows),
          library_(std::move(library)),
          threads_(threads) {}

    using Kernels::run;
    void run(const Arguments& call, Step step) const override;
    [[nodiscard]] SummaryPlaces summaries(const Arguments& call, std::int64_t n,
                                          std::span<const std::int64_t> offsets) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Arguments& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

  private:
    struct Workspace;
    [[nodiscard]] Workspace lay_out(const Bound& bound) const;
    void launch(const Bound& bound, const Workspace& workspace, char* memory, const Threads& threads, Step step) const;

    const Callable& callable_;
    std::vector<Function> kernels_;
    Function last_rows_;
    std::shared_ptr<const void> library_;
    int threads_;
};

}  // namespace forge::runtime
