/// In place of device/cuda/ptx/copy.h.
#pragma once

namespace forge::cuda::ptx {

inline unsigned shared_address(const void* p) { return __cvta_generic_to_shared(p); }

template <class T>
T* global_address(T* p) {
    return p;
}

inline void copy_16(unsigned shared, const void* global, int valid) { forge_hardware->copy(shared, global, 16, valid); }
inline void copy_8(unsigned shared, const void* global, int valid) { forge_hardware->copy(shared, global, 8, valid); }
inline void copy_4(unsigned shared, const void* global, int valid) { forge_hardware->copy(shared, global, 4, valid); }
inline void copy_commit() { forge_hardware->copy_commit(); }
template <int PENDING>
void copy_wait() {
    forge_hardware->copy_wait(PENDING);
}
inline void fence_async() { forge_hardware->fence_async(); }

namespace detail {

/// A lane's part in a move of blocks.
struct Blocks {
    unsigned* x;
    unsigned shared;
};

/// f(number in shared memory, the half of a register that it is moved from or to), for all of a warp's four blocks.
template <bool TRANSPOSED, class F>
void each_number(void* const* lanes, F f) {
    for (int l = 0; l < 32; ++l)
        for (int block = 0; block < 4; ++block)
            for (int half = 0; half < 2; ++half) {
                const int along = l % 4 * 2 + half, row = TRANSPOSED ? along : l / 4, col = TRANSPOSED ? l / 4 : along;
                const unsigned shared = static_cast<const Blocks*>(lanes[8 * block + row])->shared;
                if (shared % 16 != 0) forge_hardware->fail("a row of a block is not aligned to 16 bytes");
                unsigned short* const place =
                    reinterpret_cast<unsigned short*>(reinterpret_cast<char*>(scratch) + shared) + col;
                f(*place, reinterpret_cast<unsigned short*>(static_cast<const Blocks*>(lanes[l])->x + block)[half]);
            }
}

}  // namespace detail

template <bool TRANSPOSED>
void load_blocks(unsigned (&x)[4], unsigned shared) {
    detail::Blocks mine{x, shared};
    forge_hardware->together(&mine, [](void* const* lanes) {
        detail::each_number<TRANSPOSED>(lanes, [](const unsigned short& place, unsigned short& half) { half = place; });
    });
}

template <bool TRANSPOSED>
void store_blocks(unsigned shared, const unsigned (&x)[4]) {
    unsigned registers[4] = {x[0], x[1], x[2], x[3]};
    detail::Blocks mine{registers, shared};
    forge_hardware->together(&mine, [](void* const* lanes) {
        detail::each_number<TRANSPOSED>(lanes, [](unsigned short& place, const unsigned short& half) { place = half; });
    });
}

}  // namespace forge::cuda::ptx
