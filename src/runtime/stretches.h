/// A call on the CPU in stretches: all kernels go through the same few chunks of every sequence before the first one
/// begins the next, so that what passes between them stays in the caches. Which chunks those are; nothing runs here.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

/// The part of every sequence that is worked on at a time, and the numbers of its chunks.
struct Stretch {
    device::Size row = 0, end = 0;          ///< tokens within each sequence, whole chunks
    std::vector<int> sequences;             ///< that have tokens in here; all, in the first stretch
    std::vector<device::Size> first_chunk;  ///< per sequence of the call
    std::vector<int> chunk_sequence;
};

/// In order; one at least. A plan that is not run in stretches has one that holds everything.
std::vector<Stretch> stretches_of(const plan::Plan& plan, const Bound& bound);

/// The most blocks of a spill that are in use at a time, in a call or in any call within bounds; does not fall when one
/// rises.
std::int64_t spill_blocks(const plan::Plan& plan, const plan::SpillSlot& spill, const Bound& bound);

}  // namespace forge::runtime
