/// What is known and not mended: finding it again is no news. `fuzz_programs --known` looks for it all the same.
#pragma once

namespace forge::fuzz {

/// Naive decays per channel between several rows per token, exp(G) and exp(-G) of repeated rows, which no pass makes
/// safe.
inline bool kRepeatedDecays = true;

}  // namespace forge::fuzz
