/// Faults that are known and being mended elsewhere: programs that would only find them again are kept from the engines
/// that have them. Each flag goes when its fault does.
#pragma once

namespace forge::fuzz {

/// Vectors that mix amax or linear_scan over tokens with decays: emitted code that the CUDA compiler refuses.
inline constexpr bool kMixedVectors = true;
/// Several rows per token on warp groups: wrong copies.
inline constexpr bool kSeveralRows = true;
/// Programs that have no kernel, as what they hold is larger than shared memory.
inline constexpr bool kNoKernel = true;

}  // namespace forge::fuzz
