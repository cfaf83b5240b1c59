/// In place of device/cuda/ptx/overlap.h: the next kernel always starts as early as it may.
#pragma once

namespace forge::cuda::ptx {

inline void let_next_kernel_start() {}
inline void wait_for_kernel_before() {
    if (forge_hardware) forge_hardware->wait_for_kernel_before();  // kernels without warps run after one another
}

/// Whoever reads early what the kernel before writes has what was there.
inline int load_early(const int* p) { return *p; }
template <unsigned BYTES>
inline void expect(const void*) {
    static_assert(BYTES % 16 == 0);
}

inline void fence_device() {}
inline void store_release(unsigned* p, unsigned x) { *p = x; }
/// Whoever looks for a word that is not there lets the kernel before run, to its end.
inline unsigned load_acquire(const unsigned* p) {
    if (*p != 1) wait_for_kernel_before();
    if (*p != 1) forge_hardware->fail("a thread waits for a word that nobody writes");
    return *p;
}
inline void fence_async_global() {}

}  // namespace forge::cuda::ptx
