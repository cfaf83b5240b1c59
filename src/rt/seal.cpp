#include "rt/seal.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "forge/error.h"

namespace forge::rt {
namespace {

constexpr std::string_view kSeal = "\nforge-package ";
constexpr std::size_t kDigits = 16, kSealSize = kSeal.size() + kDigits + 1;

}  // namespace

std::string fingerprint(std::string_view content) {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15U;  // of the golden ratio: spreads low bits to high ones
    std::uint64_t lanes[4] = {1, 2, 3, 4};                  // which a processor works on at once
    std::size_t at = 0;
    const auto mix = [&](std::uint64_t& hash, std::uint64_t word) {
        hash = (hash ^ word) * kFactor;
        hash ^= hash >> 29;
    };
    for (; at + sizeof(lanes) <= content.size(); at += sizeof(lanes)) {
        std::uint64_t words[4];
        std::memcpy(words, content.data() + at, sizeof(words));
        for (int lane = 0; lane < 4; ++lane) mix(lanes[lane], words[lane]);
    }
    std::uint64_t hash = content.size();
    for (const std::uint64_t lane : lanes) mix(hash, lane);
    for (; at < content.size(); ++at) mix(hash, static_cast<unsigned char>(content[at]));
    mix(hash, 0);
    return fmt::format("{:016x}", hash);
}

std::string sealed(std::string content) {
    const std::string seal = fingerprint(content);
    return std::move(((content += kSeal) += seal) += '\n');
}

std::size_t check_seal(std::string_view content, const std::string& file) {
    const std::size_t size = content.size() < kSealSize ? 0 : content.size() - kSealSize;
    if (content.size() < kSealSize || content.substr(size, kSeal.size()) != kSeal)
        throw RuntimeError(
            fmt::format("{}: expected a file of a Forge package, which ends in a seal; this one is truncated or "
                        "something else",
                        file));
    if (content.substr(size + kSeal.size(), kDigits) != fingerprint(content.substr(0, size)))
        throw RuntimeError(fmt::format("{}: damaged: its content is not what its seal says", file));
    return size;
}

}  // namespace forge::rt
