/// Where a thread stands.
#pragma once

namespace forge::cuda::ptx {

/// %tid.x; volatile: read where it is written, never kept from before.
__device__ __forceinline__ unsigned thread_in_block() {
    unsigned number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

}  // namespace forge::cuda::ptx
