/// Stores of several registers at once, which the compiler would take apart where they do not lie side by side. One
/// function per instruction; p is in global memory and a multiple of their size.
#pragma once

namespace forge::cuda::ptx {

__device__ __forceinline__ void store_global(void* p, unsigned x, unsigned y) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_global(void* p, unsigned x, unsigned y, unsigned z, unsigned w) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

}  // namespace forge::cuda::ptx
