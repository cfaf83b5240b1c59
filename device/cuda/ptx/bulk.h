/// Copies of whole blocks that one thread issues and the hardware carries out: between global memory and shared memory,
/// plain, or of a box of a tensor that a map (CUtensorMap) describes. Loads report their bytes to a barrier in shared
/// memory that has been told to expect them; stores belong to bulk groups of the issuing thread. One function per
/// instruction; `shared` and `barrier` are addresses in shared memory. PTX ISA, sections "cp.async.bulk" and
/// "cp.async.bulk.tensor".
#pragma once

namespace forge::cuda::ptx {

/// The barrier's current phase completes only after that many more bytes have arrived (expect_tx).
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Addresses and bytes are multiples of 16.
__device__ __forceinline__ void bulk_load(unsigned shared, const void* global, unsigned bytes, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/// The reverse.
__device__ __forceinline__ void bulk_store(void* global, unsigned shared, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
                 : "memory");
}

/// The box that begins at column c, row r, in plane p of volume q; zeros beyond the tensor's ends.
__device__ __forceinline__ void tensor_load(unsigned shared, const void* map, int c, int r, int p, int q,
                                            unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
        "%5}], [%6];" ::"r"(shared),
        "l"(map), "r"(c), "r"(r), "r"(p), "r"(q), "r"(barrier)
        : "memory");
}

/// The reverse; nothing is written beyond the tensor's ends.
__device__ __forceinline__ void tensor_store(const void* map, int c, int r, int p, int q, unsigned shared) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(c), "r"(r), "r"(p), "r"(q), "r"(shared)
                 : "memory");
}

/// This thread's stores since the last call are one group.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// All of this thread's groups of stores but the last PENDING have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

}  // namespace forge::cuda::ptx
