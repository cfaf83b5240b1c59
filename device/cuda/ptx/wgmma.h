/// The warp group's matrix instructions: 128 threads multiply a 64 x 16 by a 16 x N matrix of 16-bit numbers into a 64
/// x N matrix of fp32 ones, asynchronously. One function per N, element type and home of the first operand: registers
/// ("rs") or shared memory ("ss"); the second is always in shared memory. `d` must not be touched between `wgmma_fence`
/// and the `wgmma_wait` of its group.
///
/// With w = warp % 4, g = lane / 4 and t = lane % 4, a thread holds of d, in order: rows 16 w + g and 16 w + g + 8,
/// columns 2 t and 2 t + 1, of each 8 columns; of a: two numbers per register, (g, 2t), (g + 8, 2t), (g, 2t + 8), (g +
/// 8, 2t + 8), rows counted from 16 w. PTX ISA, section "Asynchronous Warpgroup Level Matrix Instructions".
///
/// ACCUMULATE: d += else d =. SIGN: 1 or -1, of the product. ROWS_A, ROWS_B: the operand is contracted along its rows
/// in memory ("MN-major"), else along its columns ("K-major").
#pragma once

#include "mma.h"

namespace forge::cuda::ptx {

/// Registers of matrix operands are as other instructions left them: before the first of a group.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// All since the last call are one group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// All groups but the last PENDING are done.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <Half T, int N, bool ACCUMULATE, int SIGN, bool ROWS_A, bool ROWS_B>
struct Wgmma;

#define FORGE_WGMMA_RESULT_64                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FORGE_WGMMA_REGISTERS_64                                                                                \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define FORGE_WGMMA_RS_64 "{%32, %33, %34, %35}, %36, p, %38, 1, %39; }"  // a, b, accumulate, sign, rows_b
#define FORGE_WGMMA_SS_64 "%32, %33, p, %35, 1, %36, %37; }"

#define FORGE_WGMMA_RESULT_128                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FORGE_WGMMA_REGISTERS_128                                                                               \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), \
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), \
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define FORGE_WGMMA_RS_128 "{%64, %65, %66, %67}, %68, p, %70, 1, %71; }"  // a, b, accumulate, sign, rows_b
#define FORGE_WGMMA_SS_128 "%64, %65, p, %67, 1, %68, %69; }"

/// RS, SS: the number of the operand that says whether to accumulate.
#define FORGE_WGMMA(Type, type, N, RS, SS)                                                                           \
    template <bool ACCUMULATE, int SIGN, bool ROWS_A, bool ROWS_B>                                                   \
    struct Wgmma<Half::Type, N, ACCUMULATE, SIGN, ROWS_A, ROWS_B> {                                                  \
        static __device__ __forceinline__ void rs(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b) { \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" RS ", 0; wgmma.mma_async.sync.aligned.m64n" #N           \
                         "k16.f32." type "." type " {" FORGE_WGMMA_RESULT_##N "}, " FORGE_WGMMA_RS_##N               \
                         : FORGE_WGMMA_REGISTERS_##N                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE), "n"(SIGN),           \
                           "n"(ROWS_B));                                                                             \
        }                                                                                                            \
        static __device__ __forceinline__ void ss(float (&d)[N / 2], unsigned long long a, unsigned long long b) {   \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" SS ", 0; wgmma.mma_async.sync.aligned.m64n" #N           \
                         "k16.f32." type "." type " {" FORGE_WGMMA_RESULT_##N "}, " FORGE_WGMMA_SS_##N               \
                         : FORGE_WGMMA_REGISTERS_##N                                                                 \
                         : "l"(a), "l"(b), "n"(ACCUMULATE), "n"(SIGN), "n"(ROWS_A), "n"(ROWS_B));                    \
        }                                                                                                            \
    };

FORGE_WGMMA(Bf16, "bf16", 64, "37", "34")
FORGE_WGMMA(F16, "f16", 64, "37", "34")
FORGE_WGMMA(Bf16, "bf16", 128, "69", "66")
FORGE_WGMMA(F16, "f16", 128, "69", "66")

#undef FORGE_WGMMA
#undef FORGE_WGMMA_RESULT_64
#undef FORGE_WGMMA_RESULT_128
#undef FORGE_WGMMA_REGISTERS_64
#undef FORGE_WGMMA_REGISTERS_128
#undef FORGE_WGMMA_RS_64
#undef FORGE_WGMMA_RS_128
#undef FORGE_WGMMA_SS_64
#undef FORGE_WGMMA_SS_128

}  // namespace forge::cuda::ptx
