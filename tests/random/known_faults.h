/// Faults that are known and being mended elsewhere: finding them again is no news. Each flag goes when its fault does;
/// `fuzz_programs --known` clears all of them.
#pragma once

#include <string>

#include "tests/random/examine.h"

namespace forge::fuzz {

/// Vectors of tokens that mix norms, amax or linear_scan with decays: code for warp groups that no compiler takes.
inline bool kMixedVectors = true;
/// Several rows per token, of inputs and outputs, on warp groups: wrong copies. Such programs are kept from that
/// engine.
inline bool kSeveralRows = true;
/// Programs that have no kernel, as what they hold is larger than shared memory.
inline bool kNoKernel = true;
/// Naive decays per channel between several rows per token, exp(G) and exp(-G) of repeated rows, which no pass makes
/// safe.
inline bool kRepeatedDecays = true;
/// What prev_token looks back to is not carried from call to call.
inline bool kNotCarried = true;

/// Whether an exception is a fault that is known; counted.
inline bool note_known(const std::string& text, Tally& tally) {
    const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
    if (kMixedVectors && (has("no matching function for call to") || has("no instance of")) && has("cumsum")) {
        ++tally["known: vectors that mix norms with decays"];
        return true;
    }
    if (kNoKernel && has("shared memory: expected at most")) {
        ++tally["known: no kernel is small enough"];
        return true;
    }
    return false;
}

}  // namespace forge::fuzz
