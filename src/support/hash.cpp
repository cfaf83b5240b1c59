#include "support/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace forge::support {

std::string hash(const std::string& content) {
    const XXH128_hash_t h = XXH3_128bits(content.data(), content.size());
    return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace forge::support
