/// In place of device/cuda/ptx/overlap.h: the next kernel always starts as early as it may.
#pragma once

namespace forge::cuda::ptx {

inline void let_next_kernel_start() {}
inline void wait_for_kernel_before() { forge_hardware->wait_for_kernel_before(); }

}  // namespace forge::cuda::ptx
