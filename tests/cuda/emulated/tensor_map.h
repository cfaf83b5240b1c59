/// A tensor as the driver of tests (tests/launch/recorder) describes it for tensor copies, in the 128 bytes of a
/// CUtensorMap: what cuTensorMapEncodeTiled was told, in plain numbers. The address comes first.
#pragma once

#include <cstdint>

namespace forge::emulated {

struct TensorMap {
    static constexpr int kAxes = 4, kSwizzle128 = 3, kF32 = 7;
    std::uint64_t address;
    std::uint64_t sizes[kAxes];        ///< columns first
    std::uint64_t strides[kAxes - 1];  ///< bytes, of the axes after the first
    std::uint32_t box[kAxes];
    std::uint32_t axes, swizzle, bytes;  ///< of a number
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace forge::emulated
