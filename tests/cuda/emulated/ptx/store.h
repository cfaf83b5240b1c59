/// In place of device/cuda/ptx/store.h.
#pragma once

namespace forge::cuda::ptx {

inline void store_global(void* p, unsigned x, unsigned y) { *static_cast<uint2*>(p) = {x, y}; }
inline void store_global(void* p, unsigned x, unsigned y, unsigned z, unsigned w) {
    *static_cast<uint4*>(p) = {x, y, z, w};
}

}  // namespace forge::cuda::ptx
