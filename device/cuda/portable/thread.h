/// The block of threads that works on one task, and what its functions have in common.
///
/// All threads of the block call every function of the device library together ("cooperatively"); each does its share.
/// A function may start while other threads are still in the one before: a thread that reads what another one wrote
/// calls sync() in between. The emitter does that between operations, a function does it between its own steps.
#pragma once

#define FORGE_DEVICE __device__ __forceinline__

#ifndef FORGE_THREADS
#define FORGE_THREADS 256
#endif

#ifdef __CUDACC_RTC__  // the literals of emitted code, which NVRTC alone does not know
FORGE_DEVICE float __builtin_inff() { return __int_as_float(0x7f800000); }
FORGE_DEVICE float __builtin_nanf(const char*) { return __int_as_float(0x7fffffff); }
#endif

#ifdef FORGE_GROUPS
#include "../ptx/barrier.h"
#endif
#include "../ptx/thread.h"

namespace forge::cuda {

constexpr int kThreads = FORGE_THREADS;
constexpr int kLanes = 32;
constexpr int kWarps = kThreads / kLanes;

/// The number of this thread. Read anew in every operation: were it one value, the compiler would compute the addresses
/// of all operations of a chunk ahead of the loop over chunks, and run out of registers. Where several groups of
/// kThreads share a block (FORGE_GROUPS), its number in the group.
FORGE_DEVICE int thread() {
    const unsigned number = ptx::thread_in_group();
    __builtin_assume(number < kThreads);
    return static_cast<int>(number);
}
FORGE_DEVICE int lane() { return thread() % kLanes; }
FORGE_DEVICE int warp() { return thread() / kLanes; }

/// What any thread wrote before is seen by every thread after.
#ifdef FORGE_GROUPS
FORGE_DEVICE void sync() { ptx::barrier_sync(1 + ptx::group_in_block(), kThreads); }
/// Of a kernel whose blocks have one group, beside others whose blocks have several: its barrier then is a constant.
FORGE_DEVICE void only_group() { __builtin_assume(ptx::group_in_block() == 0); }
#else
FORGE_DEVICE void sync() { __syncthreads(); }
#endif

__host__ __device__ constexpr int min(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int max(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int pieces(int n, int size) { return (n + size - 1) / size; }
__host__ __device__ constexpr int round_up(int n, int m) { return pieces(n, m) * m; }

constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace forge::cuda
