/// A block's shared memory. What nobody has written yet, or is being written beside computation, is NaN in every type.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace forge::emulated {

struct SharedMemory {
    static constexpr int kPoison = 0xFF;
    std::byte* data;
    std::size_t bytes;

    /// std::runtime_error unless all of it lies inside and is aligned.
    [[nodiscard]] std::byte* at(unsigned address, std::size_t count, std::size_t alignment) const {
        if (address + count > bytes || address % alignment != 0)
            throw std::runtime_error(
                fmt::format("{} bytes at {} of {} in shared memory, aligned to {}", count, address, bytes, alignment));
        return data + address;
    }
    void poison(unsigned address, std::size_t count, std::size_t alignment) const {
        std::memset(at(address, count, alignment), kPoison, count);
    }
};

/// Where a byte lies in the hardware's 128-byte swizzle.
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7u) << 4; }

}  // namespace forge::emulated
