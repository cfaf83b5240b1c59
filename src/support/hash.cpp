#include "support/hash.h"

#include <fmt/format.h>

#include <cstdint>

#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace forge::support {
namespace {

struct Bits {
    std::uint64_t high, low;
};

#ifdef XXH_INLINE_ALL
Bits bits_of(const std::string& content) {
    const XXH128_hash_t h = XXH3_128bits(content.data(), content.size());
    return {h.high64, h.low64};
}
#else  // FNV-1a twice, from two bases
Bits bits_of(const std::string& content) {
    Bits h{0x9E3779B97F4A7C15U, 0xCBF29CE484222325U};
    for (const char c : content) {
        h.high = (h.high ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
        h.low = (h.low ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    }
    return h;
}
#endif

}  // namespace

std::string hash(const std::string& content) {
    const Bits h = bits_of(content);
    return fmt::format("{:016x}{:016x}", h.high, h.low);
}

}  // namespace forge::support
