/// Kernels on a GPU: compiled and loaded. runtime/prepared_call launches them, on the caller's stream without
/// allocation, copies or synchronisation. Grids and workspace come from the shapes of a call alone; lengths of packed
/// sequences are read by the kernels, so that a captured graph can be replayed with others.
#pragma once

#include "runtime/cuda_driver.h"
#include "runtime/kernels.h"

namespace forge::runtime {

/// Kernels for a GPU that is not there: what they would need of it is known, but not one call can be made.
class AbsentGpuKernels : public Kernels {
  public:
    /// The callable must outlive this. `gpu`: its name, for people.
    AbsentGpuKernels(const Callable& callable, std::string obstacle)
        : callable_(callable), obstacle_(std::move(obstacle)) {}
    using Kernels::run;
    void run(const Arguments& call, Step step) const override;
    [[nodiscard]] SummaryPlaces summaries(const Arguments& call, std::int64_t n,
                                          std::span<const std::int64_t> offsets) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Arguments& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

  private:
    const Callable& callable_;
    std::string obstacle_;  ///< why they are not to be called
};

class CudaProgram : public Kernels {
  public:
    /// `cubin`: of the kernels' source. The callable must outlive this.
    CudaProgram(const Callable& callable, const std::string& cubin, const CudaDevice& device);
    ~CudaProgram() override;

    using Kernels::run;
    void run(const Arguments& call, Step step) const override;
    [[nodiscard]] SummaryPlaces summaries(const Arguments& call, std::int64_t n,
                                          std::span<const std::int64_t> offsets) const override;
    [[nodiscard]] std::shared_ptr<const PreparedCall> prepare(const Arguments& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Arguments& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

    [[nodiscard]] const CudaDevice& device() const { return device_; }
    [[nodiscard]] const std::vector<CudaFunction>& kernels() const { return kernels_; }  ///< in the callable's order
    [[nodiscard]] CudaFunction last_rows() const { return last_rows_; }                  ///< nullptr: there is none

  private:
    const Callable& callable_;
    const CudaDevice& device_;
    CudaModuleHandle module_ = nullptr;
    std::vector<CudaFunction> kernels_;
    CudaFunction last_rows_ = nullptr;
};

}  // namespace forge::runtime
