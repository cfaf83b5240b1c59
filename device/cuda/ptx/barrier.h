/// Barriers in shared memory (mbarrier), at which some threads arrive and others wait, barriers of a part of a block,
/// and how many registers a warp group has. One function per instruction; `shared` is an address in shared memory.
#pragma once

namespace forge::cuda::ptx {

/// The barrier's phase ends when `arrivals` threads have arrived; then the next one begins.
__device__ __forceinline__ void barrier_begin(unsigned shared, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared), "r"(arrivals) : "memory");
}

/// Barriers that this thread has begun are seen by bulk copies that start after the next barrier of the block.
__device__ __forceinline__ void barriers_begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// What this thread did before is seen by those that waited for the phase.
__device__ __forceinline__ void barrier_arrive(unsigned shared) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared) : "memory");
}

/// Whether the phase of this parity has ended; may wait a while.
__device__ __forceinline__ bool barrier_passed(unsigned shared, unsigned parity) {
    unsigned passed;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed)
                 : "r"(shared), "r"(parity)
                 : "memory");
    return passed != 0;
}

/// Barrier number `number` of the block, for `threads` of its threads.
__device__ __forceinline__ void barrier_sync(unsigned number, unsigned threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// This warp group's registers per thread from now on: fewer than it began with, or more, which must have become free.
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace forge::cuda::ptx
