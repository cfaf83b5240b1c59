/// A plan's kernels on a GPU: compiled and loaded. runtime/prepared_call launches them, on the caller's stream without
/// allocation, copies or synchronisation. Grids and workspace come from the shapes of a call alone; lengths of packed
/// sequences are read by the kernels, so that a captured graph can be replayed with others.
#pragma once

#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "forge/runtime.h"
#include "runtime/cuda_driver.h"

namespace forge::runtime {

class CudaProgram {
  public:
    CudaProgram(const plan::Plan& plan, const std::string& source, const CudaDevice& device,
                const std::string& cache_dir);
    ~CudaProgram();
    CudaProgram(const CudaProgram&) = delete;
    CudaProgram& operator=(const CudaProgram&) = delete;

    struct Kernel {
        CudaFunction function = nullptr;
        emit::Launch how;
    };
    [[nodiscard]] const CudaDevice& device() const { return device_; }
    [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }  ///< in the plan's order
    [[nodiscard]] CudaFunction last_rows() const { return last_rows_; }            ///< nullptr: the plan has none
    [[nodiscard]] bool from_cache() const { return from_cache_; }

  private:
    const CudaDevice& device_;
    CudaModuleHandle module_ = nullptr;
    std::vector<Kernel> kernels_;
    CudaFunction last_rows_ = nullptr;
    bool from_cache_ = false;
};

/// The schedule for a GPU, which need not be there: what the caller asked for, fitted to its shared memory.
plan::Schedule cuda_schedule(const ir::Definition& definition, const ir::Function& program,
                             const CompileOptions& options, const schedule::GpuFacts& device);

/// RuntimeError if the kernels' arguments have no room for all that a plan has.
void check_limits(const plan::Plan& plan);

}  // namespace forge::runtime
