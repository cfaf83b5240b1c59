/// The maps by which a kernel's tensor copies know the tensors of a call. They are encoded once for a layout; each
/// launch puts its addresses into them.
#pragma once

#include <span>

#include "device/cuda/portable/call.h"
#include "runtime/callable.h"

namespace forge::runtime {

class MapLayout {
  public:
    MapLayout() = default;
    /// `how`: of one of the kernels, which must outlive this. `call`: any call of the layout.
    MapLayout(const Callable& callable, const Launch& how, const cuda::Call& call);

    /// Not usable if a tensor's address or strides are no multiples of 16 bytes, or its columns are not dense.
    [[nodiscard]] cuda::TensorMaps with(const cuda::Call& call) const;

  private:
    std::span<const int> tensors_;  ///< of each map
    cuda::TensorMaps maps_{};
};

}  // namespace forge::runtime
