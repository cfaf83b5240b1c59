#include "check/element.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "forge/error.h"

namespace forge::check {
namespace {

template <class T>
T read(const std::byte* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

template <class T>
void write(std::byte* p, T x) {
    std::memcpy(p, &x, sizeof x);
}

double from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

std::uint16_t to_bf16(double value) {
    if (std::isnan(value)) return 0x7FC0U;
    auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    bits += 0x7FFFU + ((bits >> 16U) & 1U);  // to nearest, ties to even; overflow carries into infinity
    return static_cast<std::uint16_t>(bits >> 16U);
}

double from_f16(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const double sign = (bits >> 15) != 0 ? -1 : 1;
    if (exponent == 31) return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

std::uint16_t to_f16(double value) {
    const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
    if (std::isnan(value)) return 0x7E00U;
    const double size = std::fabs(value);
    if (size >= 65520) return static_cast<std::uint16_t>(sign | 0x7C00U);
    const int exponent = std::max(size > 0 ? std::ilogb(size) : -14, -14);
    // The mantissa as an integer; rounding up to 2048 carries into the exponent by itself.
    const auto mantissa = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    const std::uint32_t biased = mantissa < 1024 ? 0U : static_cast<std::uint32_t>(exponent + 14);
    return static_cast<std::uint16_t>(sign | ((biased << 10U) + mantissa));
}

}  // namespace

double load(const std::byte* element, DType dtype) {
    switch (dtype) {
        case DType::Bool:
            return read<std::uint8_t>(element) != 0 ? 1 : 0;
        case DType::I32:
            return read<std::int32_t>(element);
        case DType::I64:
            return static_cast<double>(read<std::int64_t>(element));
        case DType::F16:
            return from_f16(read<std::uint16_t>(element));
        case DType::BF16:
            return from_bf16(read<std::uint16_t>(element));
        case DType::F32:
            return read<float>(element);
        case DType::F64:
            return read<double>(element);
    }
    throw InternalError("check: unknown element type");
}

void store(std::byte* element, DType dtype, double value) {
    switch (dtype) {
        case DType::Bool:
            return write<std::uint8_t>(element, value != 0 ? 1 : 0);
        case DType::I32:
            return write(element, static_cast<std::int32_t>(value));
        case DType::I64:
            return write(element, static_cast<std::int64_t>(value));
        case DType::F16:
            return write(element, to_f16(value));
        case DType::BF16:
            return write(element, to_bf16(value));
        case DType::F32:
            return write(element, static_cast<float>(value));
        case DType::F64:
            return write(element, value);
    }
    throw InternalError("check: unknown element type");
}

}  // namespace forge::check
