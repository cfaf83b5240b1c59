/// In place of device/cuda/ptx/wgmma.h. A warp's part of an instruction is passed on once all its lanes have issued it.
#pragma once

#include "mma.h"

namespace forge::cuda::ptx {

inline void wgmma_fence() {}
inline void wgmma_commit() {
    forge_hardware->together(nullptr, [](void* const*) { forge_hardware->commit_products(); });
}
template <int PENDING>
void wgmma_wait() {
    forge_hardware->together(nullptr, [](void* const*) { forge_hardware->wait_for_products(PENDING); });
}
namespace detail {

/// A lane's part in a product.
struct Issue {
    float* d;
    const unsigned* registers;  ///< null: the first operand is in shared memory
    unsigned long long a, b;
};

template <Half T, int N, bool ACCUMULATE, int SIGN, bool ROWS_A, bool ROWS_B>
void issue(void* const* lanes) {
    const Issue& first = *static_cast<const Issue*>(lanes[0]);
    emulated::Product p;
    p.columns = N, p.sign = SIGN, p.accumulate = ACCUMULATE, p.bf16 = T == Half::Bf16, p.rows_a = ROWS_A,
    p.rows_b = ROWS_B;
    p.from_registers = first.registers != nullptr, p.a = first.a, p.b = first.b;
    for (int l = 0; l < emulated::kLanes; ++l) {
        const Issue& lane = *static_cast<const Issue*>(lanes[l]);
        if (lane.a != p.a || lane.b != p.b) forge_hardware->fail("lanes of a warp describe different operands");
        p.d[l] = lane.d;
        if (lane.registers) memcpy(p.registers[l].data(), lane.registers, sizeof p.registers[l]);
    }
    forge_hardware->issue(p);
}

}  // namespace detail

template <Half T, int N, bool ACCUMULATE, int SIGN, bool ROWS_A, bool ROWS_B>
struct Wgmma {
    static void rs(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b) {
        detail::Issue mine{d, a, 0, b};
        forge_hardware->together(&mine, detail::issue<T, N, ACCUMULATE, SIGN, ROWS_A, ROWS_B>);
    }
    static void ss(float (&d)[N / 2], unsigned long long a, unsigned long long b) {
        detail::Issue mine{d, nullptr, a, b};
        forge_hardware->together(&mine, detail::issue<T, N, ACCUMULATE, SIGN, ROWS_A, ROWS_B>);
    }
};

}  // namespace forge::cuda::ptx
