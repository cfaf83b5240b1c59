/// Products of 16 channels of a few rows, each number times its decay: what a lane holds of them, in fp32, and how the
/// matrix units multiply it. The order of channels is free if both operands have the same.
#pragma once

#include "../ptx/mma.h"
#include "fragment.h"

namespace forge::cuda::detail {

/// A lane's numbers of 16 channels.
struct DecayPatch {
    vec rows[2];
};

/// First operands' 16 channels, decayed since the block's beginning.
template <int COUNT>
struct DecayedRows {
    DecayPatch x[COUNT];
};

/// Adds 16 channels of column block B to the products: q kᵀ in tf32.
template <int B, int COUNT>
FORGE_DEVICE void multiply_in_tf32(float (*const (&products)[COUNT])[4], const DecayedRows<COUNT>& q,
                                   const vec (&k)[2]) {
#pragma unroll
    for (int d = 0; d < 4; d += 2)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int c = 0; c < COUNT; ++c) {
                const vec &upper = q.x[c].rows[0], &lower = q.x[c].rows[1];
                const unsigned a[] = {__float_as_uint(upper.x[d]), __float_as_uint(lower.x[d]),
                                      __float_as_uint(upper.x[d + 1]), __float_as_uint(lower.x[d + 1])};
                const unsigned b[] = {__float_as_uint(k[h].x[d]), __float_as_uint(k[h].x[d + 1])};
                ptx::mma_m16n8k8_tf32(products[c][2 * B + h], a, b);
            }
}

/// Four numbers in two parts: rounded to bf16, and what that took from them.
struct InParts {
    unsigned high[2], low[2];
    FORGE_DEVICE explicit InParts(const vec& x) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            high[n] = HalfOf<bf16>::pack(x.x[2 * n], x.x[2 * n + 1]);
            const pair rounded = HalfOf<bf16>::unpack(high[n]);
            low[n] = HalfOf<bf16>::pack(x.x[2 * n] - rounded.x[0], x.x[2 * n + 1] - rounded.x[1]);
        }
    }
};

/// The same with 16 bits of each number: three products of parts.
template <int B, int COUNT>
FORGE_DEVICE void multiply_in_parts(float (*const (&products)[COUNT])[4], const DecayedRows<COUNT>& q,
                                    const vec (&k)[2]) {
    const InParts b[] = {InParts(k[0]), InParts(k[1])};
#pragma unroll
    for (int c = 0; c < COUNT; ++c) {
        const InParts upper(q.x[c].rows[0]), lower(q.x[c].rows[1]);
        const unsigned high[] = {upper.high[0], lower.high[0], upper.high[1], lower.high[1]},
                       low[] = {upper.low[0], lower.low[0], upper.low[1], lower.low[1]};
#pragma unroll
        for (int h = 0; h < 2; ++h) ptx::mma_m16n8k16<ptx::Half::Bf16>(products[c][2 * B + h], low, b[h].high);
#pragma unroll
        for (int h = 0; h < 2; ++h) ptx::mma_m16n8k16<ptx::Half::Bf16>(products[c][2 * B + h], high, b[h].low);
#pragma unroll
        for (int h = 0; h < 2; ++h) ptx::mma_m16n8k16<ptx::Half::Bf16>(products[c][2 * B + h], high, b[h].high);
    }
}

}  // namespace forge::cuda::detail
