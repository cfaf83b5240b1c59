/// The barriers in a block's shared memory (mbarrier): phases that end when so many threads have arrived and all bytes
/// that they wait for. What a barrier knows lies here; its words in shared memory only hold a mark, so that overwriting
/// is found.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/cuda/emulated/shared_memory.h"

namespace forge::emulated {

class Barriers {
  public:
    explicit Barriers(SharedMemory memory) : memory_(memory) {}

    void begin(unsigned barrier, unsigned arrivals);
    /// From now on bulk copies see those that have begun.
    void begun();
    void arrive(unsigned barrier);
    void expect(unsigned barrier, unsigned bytes);
    /// By a bulk copy.
    void complete(unsigned barrier, unsigned bytes);
    /// Whether the phase of this parity has ended: the current one has the other.
    [[nodiscard]] bool passed(unsigned barrier, unsigned parity);
    /// What is missing for its phase to end, in words.
    [[nodiscard]] std::string missing(unsigned barrier);

  private:
    struct State {
        unsigned arrivals = 0, awaited = 0, phase = 0;
        bool seen_by_copies = false;
        long long bytes = 0;  ///< may be negative for a while: bytes may arrive before they are expected
    };
    State& at(unsigned barrier);
    static void end_phase_if_complete(State& state);

    SharedMemory memory_;
    std::map<unsigned, State> states_;
};

}  // namespace forge::emulated
