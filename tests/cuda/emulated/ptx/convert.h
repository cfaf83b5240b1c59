/// In place of device/cuda/ptx/convert.h.
#pragma once

namespace forge::cuda::ptx {

inline unsigned short bf16_from_float(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline unsigned short f16_from_float(float x) {
    const _Float16 y = static_cast<_Float16>(x);
    unsigned short bits;
    memcpy(&bits, &y, sizeof bits);
    return bits;
}

inline float float_from_f16(unsigned short x) {
    _Float16 y;
    memcpy(&y, &x, sizeof y);
    return static_cast<float>(y);
}

inline unsigned bf16_pair(float low, float high) {
    return bf16_from_float(low) | static_cast<unsigned>(bf16_from_float(high)) << 16;
}
inline unsigned f16_pair(float low, float high) {
    return f16_from_float(low) | static_cast<unsigned>(f16_from_float(high)) << 16;
}

inline float exp2_approximate(float x) { return exp2f(x); }
inline float reciprocal_approximate(float x) { return 1.0f / x; }
inline float full_reciprocal_approximate(float x) { return 1.0f / x; }
inline float rsqrt_approximate(float x) { return 1.0f / sqrtf(x); }
inline float log_approximate(float x) { return logf(x); }
inline float sqrt_approximate(float x) { return sqrtf(x); }
inline float sin_approximate(float x) { return sinf(x); }
inline float cos_approximate(float x) { return cosf(x); }
inline float maximum_or_nan(float x, float y) { return x != x ? x : y != y ? y : x > y ? x : y; }

}  // namespace forge::cuda::ptx
