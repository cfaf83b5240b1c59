#include "tests/fuzz/guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace forge::fuzz {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::byte kPattern{0xA5};

std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes, std::size_t alignment, bool at_end, std::size_t remainder)
    : size_(bytes) {
    const std::size_t usable = rounded_up(bytes + alignment + remainder, kPage);
    map_bytes_ = usable + 2 * kPage;
    void* map = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();  // NOLINT: a macro of the system's
    map_ = static_cast<std::byte*>(map);
    first_ = map_ + kPage, last_ = first_ + usable;
    if (mprotect(first_, usable, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(first_, static_cast<int>(kPattern), usable);
    const std::size_t to_end = (usable - bytes - remainder) / alignment * alignment;
    data_ = first_ + (at_end ? to_end : 0) + remainder;
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
    std::swap(map_, other.map_), std::swap(first_, other.first_), std::swap(last_, other.last_);
    std::swap(data_, other.data_), std::swap(map_bytes_, other.map_bytes_), std::swap(size_, other.size_);
    return *this;
}

GuardedMemory::~GuardedMemory() {
    if (map_) munmap(map_, map_bytes_);
}

bool GuardedMemory::is_intact() const {
    const auto is_pattern = [](std::byte b) { return b == kPattern; };
    return std::all_of(first_, data_, is_pattern) && std::all_of(data_ + size_, last_, is_pattern);
}

}  // namespace forge::fuzz
