/// Blocks of threads that a GPU of compute capability 9 starts together, and what they send into each other's shared
/// memory: a mailbox is a barrier (mbarrier) that counts the bytes that have come. PTX ISA, "Cluster of Cooperative
/// Thread Arrays" and "st.async". One function per instruction, as far as that goes; a launch without clusters has
/// those of one block.
#pragma once

namespace forge::cuda::ptx {

using Mailbox = unsigned long long;

__device__ __forceinline__ unsigned cluster_in_grid() {
    unsigned number;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(number));
    return number;
}
__device__ __forceinline__ unsigned block_in_cluster() {
    unsigned number;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
    return number;
}
__device__ __forceinline__ unsigned cluster_blocks() {
    unsigned count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

/// A thread says that it has started, and waits until all threads of the cluster have. Nothing is ordered by it but the
/// opening of mailboxes.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

__device__ __forceinline__ unsigned address_of(const void* shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// Before this thread's `cluster_arrive`.
__device__ __forceinline__ void mailbox_open(Mailbox* box) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(address_of(box))
                 : "memory");
}

/// So many bytes will have come when the box's next phase ends.
__device__ __forceinline__ void mailbox_expect(Mailbox* box, unsigned bytes) {
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(address_of(box)),
        "r"(bytes)
        : "memory");
}

/// Until the phase of this parity has ended; what came is then seen.
__device__ __forceinline__ void mailbox_await(Mailbox* box, unsigned parity) {
    for (unsigned passed = 0; !passed;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(passed)
                     : "r"(address_of(box)), "r"(parity)
                     : "memory");
}

/// Two numbers, 8 bytes, to where `mine` lies in another block's shared memory, past its mailbox `box`. Both are
/// addresses in this block's; `mine` is 8-byte aligned.
__device__ __forceinline__ void send(unsigned block, const void* mine, const Mailbox* box, float x, float y) {
    asm volatile(
        "{ .reg .b32 there, bell; mapa.shared::cluster.u32 there, %0, %2; mapa.shared::cluster.u32 bell, %1, %2;"
        " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [bell]; }" ::"r"(
            address_of(mine)),
        "r"(address_of(box)), "r"(block), "f"(x), "f"(y)
        : "memory");
}

}  // namespace forge::cuda::ptx
