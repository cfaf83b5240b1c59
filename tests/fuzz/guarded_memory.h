/// Memory whose neighbours may not be touched: the page after it, or the one before it, is not there, and on the other
/// side stands a pattern.
#pragma once

#include <cstddef>

namespace forge::fuzz {

class GuardedMemory {
  public:
    GuardedMemory() = default;
    /// `at_end`: who reads or writes past the end ends the program, else who does so before the beginning. The address
    /// is `remainder` past a multiple of the alignment.
    GuardedMemory(std::size_t bytes, std::size_t alignment, bool at_end, std::size_t remainder = 0);
    GuardedMemory(GuardedMemory&& other) noexcept;
    GuardedMemory& operator=(GuardedMemory&& other) noexcept;
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Whether the bytes around are what they were.
    [[nodiscard]] bool is_intact() const;

  private:
    std::byte *map_ = nullptr, *first_ = nullptr, *last_ = nullptr, *data_ = nullptr;  ///< [first_, last_) can be used
    std::size_t map_bytes_ = 0, size_ = 0;
};

}  // namespace forge::fuzz
