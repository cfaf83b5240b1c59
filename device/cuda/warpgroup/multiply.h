/// Products on the matrix units: d = a b, d += a b or d -= a b in fp32, of 16-bit operands.
///
/// `issue_…` only starts a product; `finish<n>(fragments)` waits for all of them but the last n, and then the fragments
/// may be read. The second operand lies in shared memory and is contracted along its rows (it is B itself) or along its
/// columns (it is B's transpose); a first operand in shared memory likewise (its transpose, or itself). Instructions
/// are those of a warp group, or, in kernels that are to run where there are none (FORGE_WARPS), those of a warp.
#pragma once

#include "../portable/matmul.h"
#include "fragment.h"

namespace forge::cuda {

enum class Along { Rows, Columns };

namespace detail {

/// f(left, right) for the pairs of parts that are multiplied: not those whose product has no bits that matter beside
/// what rounding took from the last parts.
template <int LEFT, int RIGHT, class F>
FORGE_DEVICE void each_pair_of_parts(F f) {
#pragma unroll
    for (int right = 0; right < RIGHT; ++right)
#pragma unroll
        for (int left = 0; left < LEFT; ++left)
            if (left + right < (LEFT > RIGHT ? LEFT : RIGHT)) f(left, right);
}

}  // namespace detail
}  // namespace forge::cuda

#ifdef FORGE_WARPS
#include "multiply_by_warps.h"
#else
#include "multiply_by_group.h"
#endif
