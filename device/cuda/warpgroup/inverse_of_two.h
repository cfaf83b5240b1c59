/// Inverse of a unit lower-triangular matrix of 128 x 128: of the two blocks of 64 on its diagonal (inverse.h), and
///     [A 0; B C]⁻¹ = [A⁻¹ 0; -C⁻¹ (B A⁻¹) C⁻¹],
/// two products on the matrix units of numbers in two bf16 parts, which have 16 bits.
#pragma once

#include "inverse.h"
#include "move.h"
#include "multiply.h"

namespace forge::cuda {

namespace detail {

FORGE_DEVICE Fragment<64, 64>& quarter_of(Fragment<128, 128>& a, int row, int col) {
    return *reinterpret_cast<Fragment<64, 64>*>(&a.template block<64>(row, col));
}

/// a b; `work` has room for both parts of b.
FORGE_DEVICE Fragment<64, 64> multiply_in_parts(const Fragment<64, 64>& a, const Fragment<64, 64>& b, float* work) {
    const Operand<bf16, 64, 64, 2> right(work);
    sync();
    store_fragment<false>(right, b);
    const Packed<bf16, 64, 64, 2> left = pack_parts<bf16, 2>(a);
    publish();
    Fragment<64, 64> product;
    issue_multiply<Acc::Set, Along::Rows>(product, left, right);
    finish<0>(product);
    return product;
}

}  // namespace detail

/// `work`: kInverseOfTwoFloats in shared memory, 1024-byte aligned.
constexpr int kInverseOfTwoFloats = 64 * 64;
static_assert(kInverseOfTwoFloats >= kInverseFloats);
FORGE_DEVICE Fragment<128, 128> unit_lower_inverse(const Fragment<128, 128>& a, float* work) {
    using namespace detail;
    Fragment<128, 128> x = a;
    Fragment<64, 64>&first = quarter_of(x, 0, 0), &second = quarter_of(x, 64, 64), &below = quarter_of(x, 64, 0),
                 &above = quarter_of(x, 0, 64);
    first = unit_lower_inverse(first, work);
    sync();
    second = unit_lower_inverse(second, work);
    below = multiply_in_parts(below, first, work);
    below = multiply_in_parts(second, below, work);
#pragma unroll
    for (int n = 0; n < Fragment<64, 64>::kRegisters; ++n) below.x[n] = -below.x[n], above.x[n] = 0.0f;
    return x;
}

}  // namespace forge::cuda
