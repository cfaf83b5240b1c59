/// Whether other processes use a GPU: what makes a measurement there worth little. Asked of NVIDIA's management library
/// (libnvidia-ml.so.1), which comes with the driver and is opened with dlopen; where it is missing nothing is known.
#pragma once

#include "runtime/cuda_driver.h"

namespace forge::gpu {

/// The share of the GPU's time that others had before something was measured and after it. The library knows only the
/// share of the last second in which any kernel ran: it is asked when this process has run none for so long.
class Load {
  public:
    /// This process has run no kernels for a second.
    explicit Load(const runtime::CudaDevice& device);
    /// Waits for a second. 0 if nothing is known.
    [[nodiscard]] double others() const;

  private:
    const runtime::CudaDevice& device_;
    double before_;
};

}  // namespace forge::gpu
