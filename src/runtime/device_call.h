/// A call in the terms of a plan's kernels on a GPU: the arguments that each is launched with, where its part of the
/// workspace lies, how many tasks it has. Plain data; nothing is launched.
#pragma once

#include "device/cuda/portable/call.h"
#include "emit/cuda/launch.h"
#include "runtime/binding.h"

namespace forge::runtime {

std::size_t device_workspace_bytes(const plan::Plan& plan, const Bound& bound);

class DeviceCall {
 public:
    DeviceCall(const plan::Plan& plan, const Call& call, const Bound& bound);

    /// Makes `call` that of the next of the plan's kernels, and returns the number of its tasks.
    std::int64_t select(const plan::Kernel& kernel, const emit::Launch& how);

    cuda::Call call{};
    std::size_t exchange_bytes = 0;  ///< from call.exchange on, to be filled with 0xFF before the kernel starts

 private:
    const Bound& bound_;
    char* exchange_ = nullptr;  ///< of the next kernel
};

}  // namespace forge::runtime
