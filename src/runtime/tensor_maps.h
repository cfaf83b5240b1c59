/// The maps by which a kernel's tensor copies know the tensors of a call. Plain data, made anew for every call.
#pragma once

#include "device/cuda/portable/call.h"
#include "emit/cuda/launch.h"
#include "plan/plan.h"

namespace forge::runtime {

/// Not usable if a tensor's address or strides are no multiples of 16 bytes, or its columns are not dense.
cuda::TensorMaps tensor_maps(const plan::Plan& plan, const emit::Launch& how, const cuda::Call& call);

}  // namespace forge::runtime
