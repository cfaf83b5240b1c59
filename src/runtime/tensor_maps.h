/// The maps by which a kernel's tensor copies know the tensors of a call. They are encoded once for a layout; each
/// launch puts its addresses into them.
#pragma once

#include "device/cuda/portable/call.h"
#include "emit/cuda/launch.h"
#include "plan/plan.h"

namespace forge::runtime {

class MapLayout {
  public:
    MapLayout() = default;
    /// `call`: any call of the layout.
    MapLayout(const plan::Plan& plan, const emit::Launch& how, const cuda::Call& call);

    /// Not usable if a tensor's address or strides are no multiples of 16 bytes, or its columns are not dense.
    [[nodiscard]] cuda::TensorMaps with(const cuda::Call& call) const;

  private:
    std::vector<int> tensors_;  ///< of each map
    cuda::TensorMaps maps_{};
};

}  // namespace forge::runtime
