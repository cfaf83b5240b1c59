/// Conversions between fp32 and the narrower types, one instruction each; rounding is to nearest, ties to even. NaN
/// stays NaN.
#pragma once

namespace forge::cuda::ptx {

__device__ __forceinline__ unsigned short bf16_from_float(float x) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ unsigned short f16_from_float(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float float_from_f16(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

/// Two numbers in one register, `low` in its lower half.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ __forceinline__ unsigned f16_pair(float low, float high) {
    unsigned y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

#define FORGE_APPROXIMATE(name, instruction)            \
    __device__ __forceinline__ float name(float x) {    \
        float y;                                        \
        asm(instruction " %0, %1;" : "=f"(y) : "f"(x)); \
        return y;                                       \
    }

FORGE_APPROXIMATE(exp2_approximate, "ex2.approx.ftz.f32")  ///< 2^x, with an error of 2 ulp; 2^-inf = 0

// With errors of 1 ulp; numbers below 2^-126 count as 0.
FORGE_APPROXIMATE(reciprocal_approximate, "rcp.approx.ftz.f32")
FORGE_APPROXIMATE(log2_approximate, "lg2.approx.ftz.f32")
FORGE_APPROXIMATE(sqrt_approximate, "sqrt.approx.ftz.f32")
FORGE_APPROXIMATE(rsqrt_approximate, "rsqrt.approx.ftz.f32")
FORGE_APPROXIMATE(full_reciprocal_approximate, "rcp.approx.f32")  ///< of small numbers, too

// Of an angle between -2 pi and 2 pi, with errors of 2^-20.5, absolute.
FORGE_APPROXIMATE(sin_approximate, "sin.approx.ftz.f32")
FORGE_APPROXIMATE(cos_approximate, "cos.approx.ftz.f32")

#undef FORGE_APPROXIMATE

__device__ __forceinline__ float log_approximate(float x) { return log2_approximate(x) * 0.693147181f; }

/// The larger number; NaN if either is.
__device__ __forceinline__ float maximum_or_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

}  // namespace forge::cuda::ptx
