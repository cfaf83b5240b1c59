/// Where a thread stands, and what its block has.
#pragma once

namespace forge::cuda::ptx {

/// %tid.x; volatile: read where it is written, never kept from before.
__device__ __forceinline__ unsigned thread_in_group() {
    unsigned number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

/// %tid.y: blocks of several groups of threads have two axes.
__device__ __forceinline__ unsigned group_in_block() { return threadIdx.y; }

/// The same number, but what follows from it is computed where it is used, never kept from before.
__device__ __forceinline__ unsigned anew(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}

/// Holds the compiler to the order of the text: what follows does not move ahead of this, nor what precedes behind it.
__device__ __forceinline__ void hold(float& x) { asm volatile("" : "+f"(x)::"memory"); }

/// The block's dynamic shared memory.
__device__ __forceinline__ void* block_memory() {
    extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];
    return dynamic_shared_memory;
}

}  // namespace forge::cuda::ptx
