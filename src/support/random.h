/// A small generator with the same numbers from every standard library: SplitMix64 (Steele, Lea, Flood 2014) and
/// Box-Muller. Streams are told apart by mixing names into the seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace forge::support {

/// The finaliser of SplitMix64: a hash of 64 bits.
constexpr std::uint64_t mix(std::uint64_t z) {
    z += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
}

constexpr std::uint64_t mix(std::uint64_t seed, std::string_view name) {
    for (const char c : name) seed = mix(seed ^ static_cast<std::uint8_t>(c));
    return mix(seed);
}

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    double uniform() {  ///< [0, 1)
        const std::uint64_t bits = mix(state_);
        state_ += 0x9E3779B97F4A7C15U;
        return static_cast<double>(bits >> 11U) * 0x1p-53;
    }
    double normal() {
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        return radius * std::cos(2 * std::numbers::pi * uniform());
    }

  private:
    std::uint64_t state_;
};

}  // namespace forge::support
