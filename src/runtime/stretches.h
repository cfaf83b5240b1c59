/// A call on the CPU in stretches: all kernels go through the same few chunks of every sequence before the first one
/// begins the next, so that what passes between them stays in the caches. Which chunks those are; nothing runs here.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

/// The part of every sequence that is worked on at a time, and the numbers of its chunks.
struct Stretch {
    explicit Stretch(Memory* memory) : sequences(memory), first_chunk(memory), chunk_sequence(memory) {}
    device::Size row = 0, end = 0;   ///< tokens within each sequence, whole chunks
    List<int> sequences;             ///< that have tokens in here; all, in the first stretch
    List<device::Size> first_chunk;  ///< per sequence of the call
    List<int> chunk_sequence;
};

/// The stretches of a call, in order; one at least. A callable that is not run in stretches has one that holds
/// everything.
class Stretches {
  public:
    Stretches(const Callable& callable, const Bound& bound);
    /// The first one, or the next; nullptr after the last. The same memory holds all of them.
    const Stretch* next();

  private:
    const Bound& bound_;
    std::int64_t chunk_, end_, rows_, row_ = 0;
    Stretch stretch_;
};

/// The most blocks of a spill that are in use at a time, in a call or in any call within bounds; does not fall when one
/// rises.
std::int64_t spill_blocks(const Callable& callable, const Spill& spill, const Bound& bound);

}  // namespace forge::runtime
