/// What CUDA's compiler declares by itself for warps and shared memory. Included by the emitted source alone.
#pragma once

#include "hardware.h"

extern "C" {
forge::emulated::Hardware* forge_hardware;
alignas(
    1024) thread_local float scratch[(228 << 10) / 4];  ///< the block's shared memory, as the emitted source names it
void* forge_shared_memory() { return scratch; }
}

/// Blocks of one OS thread run one after the other.
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))

struct BlockIndex {
    int x;
};
// Kernels without warps run on the machine alone, in clusters of one block.
#define blockIdx (BlockIndex{forge_hardware ? forge_hardware->block() : static_cast<int>(forge_machine.cluster())})
#define gridDim (BlockIndex{forge_hardware->blocks()})

inline unsigned __cvta_generic_to_shared(const void* p) {
    return static_cast<unsigned>(static_cast<const char*>(p) - reinterpret_cast<const char*>(scratch));
}

// So do warps of such kernels.
inline int lane_of_warp() {
    return (forge_hardware ? forge_hardware->thread() : forge_machine.thread()) % forge::emulated::kLanes;
}
inline void together(void* mine, forge::emulated::Hardware::Act act) {
    if (forge_hardware) forge_hardware->together(mine, act);
    else forge_machine.together(mine, act);
}

/// A lane's part in an exchange of registers.
template <class T>
struct Exchanged {
    T mine, got;
    int from;
};

/// What lane `from` has as x; one's own where there is no such lane.
template <class T>
T exchange(T x, int from) {
    using forge::emulated::kLanes;
    Exchanged<T> e{x, x, from < 0 || from >= kLanes ? lane_of_warp() : from};
    together(&e, [](void* const* lanes) {
        for (int l = 0; l < kLanes; ++l) {
            auto* const to = static_cast<Exchanged<T>*>(lanes[l]);
            to->got = static_cast<Exchanged<T>*>(lanes[to->from])->mine;
        }
    });
    return e.got;
}

template <class T>
T __shfl_sync(unsigned, T x, int from) {
    return exchange(x, from);
}
template <class T>
T __shfl_up_sync(unsigned, T x, int n) {
    return exchange(x, lane_of_warp() - n);
}
template <class T>
T __shfl_down_sync(unsigned, T x, int n) {
    return exchange(x, lane_of_warp() + n);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int n) {
    return exchange(x, lane_of_warp() ^ n);
}
inline unsigned __ballot_sync(unsigned, bool x) {
    unsigned of_all = x ? 1u << lane_of_warp() : 0;
    for (int n = 1; n < 32; n *= 2) of_all |= __shfl_xor_sync(~0u, of_all, n);
    return of_all;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

inline void __syncwarp() {
    together(nullptr, [](void* const*) {});
}

inline bool __any_sync(unsigned, bool x) {
    together(&x, [](void* const* lanes) {
        bool any = false;
        for (int l = 0; l < forge::emulated::kLanes; ++l) any = any || *static_cast<bool*>(lanes[l]);
        for (int l = 0; l < forge::emulated::kLanes; ++l) *static_cast<bool*>(lanes[l]) = any;
    });
    return x;
}
