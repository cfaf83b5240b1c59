/// In place of device/cuda/ptx/mma.h.
#pragma once

#include "convert.h"

namespace forge::cuda::ptx {

namespace detail {

struct WarpProduct {
    float* c;
    const unsigned *a, *b;
};

/// Of a 16 x DEPTH by a DEPTH x 8 matrix; a register holds DEPTH / 8 numbers, of which `number(register, i)` is one.
template <int DEPTH, class Number>
void multiply(void* const* lanes, Number number) {
    constexpr int kPer = DEPTH / 8;
    float a[16][DEPTH], b[DEPTH][8];
    for (int l = 0; l < 32; ++l) {
        const WarpProduct& lane = *static_cast<const WarpProduct*>(lanes[l]);
        for (int i = 0; i < kPer; ++i) {
            for (int n = 0; n < 4; ++n) a[l / 4 + n % 2 * 8][(l % 4 + n / 2 * 4) * kPer + i] = number(lane.a[n], i);
            for (int n = 0; n < 2; ++n) b[(l % 4 + n * 4) * kPer + i][l / 4] = number(lane.b[n], i);
        }
    }
    for (int l = 0; l < 32; ++l)
        for (int n = 0; n < 4; ++n) {
            float& c = static_cast<const WarpProduct*>(lanes[l])->c[n];
            for (int k = 0; k < DEPTH; ++k) c += a[l / 4 + n / 2 * 8][k] * b[k][l % 4 * 2 + n % 2];
        }
}

inline void multiply_tf32(void* const* lanes) {
    multiply<8>(lanes, [](unsigned bits, int) { return __uint_as_float(bits & 0xffffe000u); });
}
inline void multiply_bf16(void* const* lanes) {
    multiply<16>(lanes, [](unsigned bits, int i) { return __uint_as_float(bits >> i * 16 << 16); });
}
inline void multiply_f16(void* const* lanes) {
    multiply<16>(lanes,
                 [](unsigned bits, int i) { return float_from_f16(static_cast<unsigned short>(bits >> i * 16)); });
}

}  // namespace detail

inline void mma_m16n8k8_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    detail::WarpProduct mine{c, a, b};
    forge_hardware->together(&mine, detail::multiply_tf32);
}

enum class Half { Bf16, F16 };

template <Half T>
void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    detail::WarpProduct mine{c, a, b};
    forge_hardware->together(&mine, T == Half::Bf16 ? detail::multiply_bf16 : detail::multiply_f16);
}

}  // namespace forge::cuda::ptx
