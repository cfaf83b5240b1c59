/// A plan's kernels on a GPU: compiled and loaded. runtime/prepared_call launches them, on the caller's stream without
/// allocation, copies or synchronisation. Grids and workspace come from the shapes of a call alone; lengths of packed
/// sequences are read by the kernels, so that a captured graph can be replayed with others.
#pragma once

#include "emit/cuda/launch.h"
#include "runtime/cuda_driver.h"
#include "runtime/executable.h"

namespace forge::runtime {

/// Kernels for a GPU that is not there: what they would need of it is known, but not one call can be made.
class AbsentGpuKernels : public Kernels {
  public:
    /// The plan must outlive this. `gpu`: its name, for people.
    AbsentGpuKernels(const plan::Plan& plan, std::string obstacle) : plan_(plan), obstacle_(std::move(obstacle)) {}
    void run(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

  private:
    const plan::Plan& plan_;
    std::string obstacle_;  ///< why they are not to be called
};

class CudaProgram : public Kernels {
  public:
    /// `cubin`: of the plan's source. The plan must outlive this.
    CudaProgram(const plan::Plan& plan, const std::string& cubin, const CudaDevice& device);
    ~CudaProgram() override;

    void run(const Call& call) const override;
    [[nodiscard]] std::shared_ptr<const PreparedCall> prepare(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Call& call) const override;
    [[nodiscard]] std::size_t workspace_bytes(const Bounds& bounds) const override;

    struct Kernel {
        CudaFunction function = nullptr;
        emit::Launch how;
    };
    [[nodiscard]] const CudaDevice& device() const { return device_; }
    [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }  ///< in the plan's order
    [[nodiscard]] CudaFunction last_rows() const { return last_rows_; }            ///< nullptr: the plan has none

  private:
    const plan::Plan& plan_;
    const CudaDevice& device_;
    CudaModuleHandle module_ = nullptr;
    std::vector<Kernel> kernels_;
    CudaFunction last_rows_ = nullptr;
};

}  // namespace forge::runtime
