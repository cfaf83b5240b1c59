/// Kernels of one stream that overlap: the next one may start while this one runs, and read words that this one writes.
/// One function per instruction. Before Hopper kernels begin when the one before has ended.
#pragma once

namespace forge::cuda::ptx {

/// Once all blocks have executed this or ended, the next kernel's blocks may start on free multiprocessors.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until the kernel before has ended and its results are visible.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// A word as memory has it now, which the kernel before may still be about to write: no first-level cache keeps it.
__device__ __forceinline__ int load_early(const int* p) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

/// Asks for BYTES at `p`, both multiples of 16, to come to the second-level cache, where they stay what memory has.
template <unsigned BYTES>
__device__ __forceinline__ void expect(const void* p) {
    static_assert(BYTES % 16 == 0);
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(BYTES)
                 : "memory");
#endif
}

/// Makes what this thread wrote before visible to the whole device.
__device__ __forceinline__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/// A thread that acquires the word sees what this thread wrote before, and what it had seen others write.
__device__ __forceinline__ void store_release(unsigned* p, unsigned x) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

/// What this thread may read of global memory, copies that it starts may read too.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace forge::cuda::ptx
