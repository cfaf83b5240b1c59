#include "tests/cuda/emulated/barriers.h"

namespace forge::emulated {
namespace {

constexpr std::uint64_t kMark = 0x6d62617272696572;  // "mbarrier"

}  // namespace

void Barriers::begin(unsigned barrier, unsigned arrivals) {
    std::memcpy(memory_.at(barrier, sizeof(kMark), sizeof(kMark)), &kMark, sizeof(kMark));
    states_[barrier] = {arrivals, arrivals};
}

void Barriers::begun() {
    for (auto& [address, state] : states_) state.seen_by_copies = true;
}

Barriers::State& Barriers::at(unsigned barrier) {
    const auto found = states_.find(barrier);
    if (found == states_.end()) throw std::runtime_error(fmt::format("no barrier has begun at {}", barrier));
    if (std::memcmp(memory_.at(barrier, sizeof(kMark), sizeof(kMark)), &kMark, sizeof(kMark)) != 0)
        throw std::runtime_error(fmt::format("the barrier at {} was overwritten", barrier));
    return found->second;
}

void Barriers::end_phase_if_complete(State& state) {
    if (state.awaited > 0 || state.bytes != 0) return;
    state.awaited = state.arrivals;
    ++state.phase;
}

void Barriers::arrive(unsigned barrier) {
    State& state = at(barrier);
    if (state.awaited == 0)
        throw std::runtime_error(fmt::format("more arrivals at {} than the {} of a phase", barrier, state.arrivals));
    --state.awaited;
    end_phase_if_complete(state);
}

void Barriers::expect(unsigned barrier, unsigned bytes) { at(barrier).bytes += bytes; }

void Barriers::complete(unsigned barrier, unsigned bytes) {
    State& state = at(barrier);
    if (!state.seen_by_copies)
        throw std::runtime_error(fmt::format("a bulk copy does not see that the barrier at {} has begun", barrier));
    state.bytes -= bytes;
    end_phase_if_complete(state);
}

bool Barriers::passed(unsigned barrier, unsigned parity) { return at(barrier).phase % 2 != parity; }

std::string Barriers::missing(unsigned barrier) {
    const State& state = at(barrier);
    return fmt::format("phase {}, {} of {} arrivals and {} bytes missing", state.phase, state.awaited, state.arrivals,
                       state.bytes);
}

}  // namespace forge::emulated
