/// Between blocks of threads that run at the same time: 64-bit words in global memory that are written and read whole,
/// in no order with any other, and a counter. PTX ISA, "Memory Consistency Model": accesses with .relaxed.gpu are
/// strong, and each element of a vector is an access of its own.
#pragma once

namespace forge::cuda::ptx {

using Word = unsigned long long;

struct TwoWords {
    Word x, y;
};

/// p is 8-byte aligned.
__device__ __forceinline__ Word load_relaxed(const Word* p) {
    Word x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}

/// p is 16-byte aligned.
__device__ __forceinline__ TwoWords load_two_relaxed(const Word* p) {
    TwoWords w;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(w.x), "=l"(w.y) : "l"(p) : "memory");
    return w;
}

__device__ __forceinline__ void store_relaxed(Word* p, Word x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(x) : "memory");
}

/// What *p was before n was added.
__device__ __forceinline__ unsigned add_relaxed(unsigned* p, unsigned n) {
    unsigned before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(n) : "memory");
    return before;
}

}  // namespace forge::cuda::ptx
