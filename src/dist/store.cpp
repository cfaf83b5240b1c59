#include "dist/store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace forge::dist::detail {
namespace {

float from_half(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16U, exponent = bits >> 10U & 31U, fraction = bits & 1023U;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
    if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
    const float tiny = static_cast<float>(fraction) * 0x1p-24F;
    return sign ? -tiny : tiny;
}

float number_at(const std::byte* at, DType dtype) {
    if (dtype == DType::F32) {
        float x = 0;
        std::memcpy(&x, at, sizeof x);
        return x;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return dtype == DType::BF16 ? std::bit_cast<float>(std::uint32_t{bits} << 16U) : from_half(bits);
}

/// The byte of an element, counted row-major.
const std::byte* element(const TensorView& view, std::int64_t flat) {
    std::int64_t offset = 0;
    for (std::size_t axis = view.shape.size(); axis-- > 0;) {
        offset += flat % view.shape[axis] * view.strides[axis];
        flat /= view.shape[axis];
    }
    return static_cast<const std::byte*>(view.data) + offset * static_cast<std::int64_t>(size_in_bytes(view.dtype));
}

}  // namespace

std::int64_t count_of(const TensorView& view) {
    std::int64_t count = 1;
    for (const std::int64_t size : view.shape) count *= size;
    return count;
}

bool is_dense(const TensorView& view) {
    std::int64_t next = 1;
    for (std::size_t axis = view.shape.size(); axis-- > 0; next *= view.shape[axis])
        if (view.shape[axis] != 1 && view.strides[axis] != next) return false;
    return true;
}

void HostStore::fill(float* to, std::size_t count, float value) { std::fill_n(to, count, value); }

const float* HostStore::neutral(std::size_t count, std::int64_t width) {
    std::vector<float>& values = taken_.emplace_back(count, 1.0F);
    for (std::int64_t i = 0; width > 0 && i < static_cast<std::int64_t>(count); ++i)
        values[static_cast<std::size_t>(i)] = i / width % width == i % width ? 1 : 0;
    return values.data();
}

void* HostStore::lasting_workspace(std::size_t bytes) {
    constexpr std::size_t kAlignment = 64;
    std::size_t space = bytes + kAlignment;
    void* memory = take((space + sizeof(float) - 1) / sizeof(float));
    return std::align(kAlignment, bytes, memory, space);
}

void HostStore::copy(const float* from, std::size_t count, float* to) { std::copy_n(from, count, to); }

void HostStore::read(const TensorView& from, float* to) {
    for (std::int64_t i = 0, count = count_of(from); i < count; ++i) to[i] = number_at(element(from, i), from.dtype);
}

std::vector<std::int64_t> HostStore::integers(const TensorView& view) {
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < view.shape.at(0); ++i) {
        std::int32_t narrow = 0;
        std::int64_t wide = 0;
        if (view.dtype == DType::I32) std::memcpy(&narrow, element(view, i), sizeof narrow), wide = narrow;
        else std::memcpy(&wide, element(view, i), sizeof wide);
        found.push_back(wide);
    }
    return found;
}

}  // namespace forge::dist::detail
