/// The warp's matrix instructions, one function each. A warp multiplies a 16 x 8 by an 8 x 8 matrix of tf32 numbers, or
/// a 16 x 16 by a 16 x 8 matrix of 16-bit ones, into a 16 x 8 matrix of fp32 ones. With g = lane / 4 and t = lane % 4,
/// a lane holds of
///     A: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)    B: (t, g), (t + 4, g)
///     C: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1),
/// and in place of each tf32 number in column or row x of A or B a pair of 16-bit ones, in 2x and 2x + 1.
/// PTX ISA, sections "Matrix Fragments for mma.m16n8k8" and "for mma.m16n8k16".
#pragma once

namespace forge::cuda::ptx {

/// c += a b. The low 13 bits of operands are ignored.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Of 16-bit numbers.
enum class Half { Bf16, F16 };

/// c += a b.
template <Half T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    if constexpr (T == Half::Bf16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
            "%1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
            "%2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace forge::cuda::ptx
