/// Copies between memories that run beside computation, moves of 8 x 8 blocks of 16-bit numbers between shared memory
/// and a warp's registers, and the fence between ordinary accesses to shared memory and those of the matrix units. One
/// function per instruction; `shared` is an address in shared memory.
#pragma once

namespace forge::cuda::ptx {

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// An address in global memory, as a number of its own: what lies at constant distances is addressed from it.
template <class T>
__device__ __forceinline__ T* global_address(T* p) {
    unsigned long long address = __cvta_generic_to_global(p);
    asm("" : "+l"(address));
    return static_cast<T*>(__cvta_global_to_generic(address));
}

/// 16 bytes to shared memory, 0 from the `valid`-th on; both addresses are multiples of 16. Past the first-level cache.
__device__ __forceinline__ void copy_16(unsigned shared, const void* global, int valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
}

/// 4 bytes likewise.
__device__ __forceinline__ void copy_4(unsigned shared, const void* global, int valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
}

/// 8 bytes likewise.
__device__ __forceinline__ void copy_8(unsigned shared, const void* global, int valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
}

/// This thread's copies since the last call are one group.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// All of this thread's groups but the last PENDING have arrived.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/// What this thread wrote to shared memory is seen by matrix units and bulk copies that start after the next barrier.
/// Before Hopper there are none that read it by themselves.
__device__ __forceinline__ void fence_async() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Four blocks: lane l gives the address of row l % 8 of block l / 8, and gets of each block row l / 4, columns 2 (l %
/// 4) and the next; TRANSPOSED: column l / 4, those rows.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_blocks(unsigned (&x)[4], unsigned shared) {
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared)
                     : "memory");
}

/// The reverse. Before Hopper each lane stores pairs of its own, in the rows of which it asks the lanes that know them.
template <bool TRANSPOSED>
__device__ __forceinline__ void store_blocks(unsigned shared, const unsigned (&x)[4]) {
#if __CUDA_ARCH__ >= 900
    if constexpr (TRANSPOSED)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x[0]),
                     "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x[0]),
                     "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
#else
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned block = 0; block < 4; ++block) {
        unsigned pair = x[block];
        if constexpr (TRANSPOSED) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
        const unsigned row = __shfl_sync(~0u, shared, 8 * block + lane / 4);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + lane % 4 * 4), "r"(pair) : "memory");
    }
#endif
}

}  // namespace forge::cuda::ptx
