/// In place of device/cuda/ptx/mma.h.
#pragma once

namespace forge::cuda::ptx {

namespace detail {

struct Tf32Product {
    float* c;
    const unsigned *a, *b;
};

inline float tf32(unsigned bits) { return __uint_as_float(bits & 0xffffe000u); }

inline void multiply_tf32(void* const* lanes) {
    float a[16][8], b[8][8];
    for (int l = 0; l < 32; ++l) {
        const Tf32Product& lane = *static_cast<const Tf32Product*>(lanes[l]);
        for (int n = 0; n < 4; ++n) a[l / 4 + n % 2 * 8][l % 4 + n / 2 * 4] = tf32(lane.a[n]);
        for (int n = 0; n < 2; ++n) b[l % 4 + n * 4][l / 4] = tf32(lane.b[n]);
    }
    for (int l = 0; l < 32; ++l)
        for (int n = 0; n < 4; ++n) {
            float& c = static_cast<const Tf32Product*>(lanes[l])->c[n];
            for (int k = 0; k < 8; ++k) c += a[l / 4 + n / 2 * 8][k] * b[k][l % 4 * 2 + n % 2];
        }
}

}  // namespace detail

inline void mma_m16n8k8_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    detail::Tf32Product mine{c, a, b};
    forge_hardware->together(&mine, detail::multiply_tf32);
}

}  // namespace forge::cuda::ptx
