/// A call that is asked for the states before its chunks, in tensors or in slots of pools: they must be those in which
/// the tokens before a chunk end, by the float64 recurrence.
#pragma once

#include <deque>

#include "tests/random/pools.h"

namespace forge::fuzz {

class ChunkStatesCall {
  public:
    /// `chunk`: tokens of a chunk of the program that is called.
    ChunkStatesCall(Decisions& d, const std::string& name, Problem& problem, std::int64_t chunk);

    /// On memory of the host; valid as long as this and the problem are. Results are cleared.
    [[nodiscard]] Call call();
    /// What is wrong with the states that the call has left.
    [[nodiscard]] std::vector<std::string> faults() const;

    /// What the call writes and reads on the host beside the problem's buffers.
    std::deque<HostBlock> blocks;

  private:
    /// A chunk, and where its state goes: negative: nowhere.
    struct Place {
        std::int64_t sequence, token, slot;
    };
    struct States {
        std::string name;
        HostBlock* memory;
        std::vector<std::int64_t> shape;
        std::int64_t of_slot;  ///< numbers
    };
    void find_chunks();
    void choose_slots(Decisions& d, const std::string& name);
    [[nodiscard]] std::string fault_of(const States& states) const;

    Problem& problem_;
    std::int64_t chunk_, slots_ = 0;
    bool pooled_ = false, wide_ = false;
    std::vector<Place> places_;
    std::vector<States> states_;
};

}  // namespace forge::fuzz
