/// A GPU's blocks of threads on a CPU: every thread is a fiber that runs until it waits. What kernels without warp
/// instructions need is here, the rest in hardware.h. Included by the emitted source in place of what CUDA's compiler
/// declares by itself, and by the test that runs it.
#pragma once

#include <math.h>
#include <string.h>

namespace forge::emulated {

/// What the running fiber asks of whoever runs it.
struct Machine {
    int (*thread)();    ///< in its block
    void* (*memory)();  ///< of its block
    void (*sync)();     ///< until all threads of the block are here
    /// Until all lanes of the warp are here; the last one calls `act` with what each has brought.
    void (*together)(void* mine, void (*act)(void* const* brought));
    void (*pause)();        ///< while it waits for another block
    unsigned (*cluster)();  ///< its number in the grid
    unsigned (*block_in_cluster)();
    unsigned (*cluster_blocks)();
    void* (*memory_of)(unsigned block,
                       const void* mine);  ///< where that lies in the memory of another block of the cluster
    void (*cluster_arrive)();
    void (*cluster_wait)();  ///< until all threads of the cluster have arrived as often as this one
};

}  // namespace forge::emulated

#ifdef FORGE_EMULATED

extern "C" {
forge::emulated::Machine forge_machine;
}

#define __CUDACC__
#define __host__
#define __device__
#define __global__ __attribute__((visibility("default")))
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __builtin_assume(condition)
#define __syncthreads() forge_machine.sync()
#define __isGlobal(pointer) true

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned x) {
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
inline unsigned __float_as_uint(float x) {
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}

#include "warp.h"

#endif
