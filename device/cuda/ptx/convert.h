/// Conversions between fp32 and the narrower types, one instruction each; rounding is to nearest, ties to even (tf32: ties
/// away from zero). NaN stays NaN.
#pragma once

namespace forge::cuda::ptx {

/// x with 10 mantissa bits, as the matrix instructions read it.
__device__ __forceinline__ unsigned tf32_from_float(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

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

}  // namespace forge::cuda::ptx
