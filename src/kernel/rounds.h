/// What threads know of one another, and barriers by whose phases they come to know it. Nothing here assumes an order in
/// which threads run: a thread knows what has happened before what it waited for, and no more.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace forge::kernel {

/// How far each actor (a thread, or something asynchronous) is known to have come.
class Clock {
  public:
    [[nodiscard]] int of(int actor) const {
        const auto n = static_cast<std::size_t>(actor);
        return n < steps_.size() ? steps_[n] : 0;
    }
    void set(int actor, int step) {
        const auto n = static_cast<std::size_t>(actor);
        if (n >= steps_.size()) steps_.resize(n + 1, 0);
        steps_[n] = std::max(steps_[n], step);
    }
    void join(const Clock& other) {
        if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size(), 0);
        for (std::size_t n = 0; n < other.steps_.size(); ++n) steps_[n] = std::max(steps_[n], other.steps_[n]);
    }

  private:
    std::vector<int> steps_;
};

/// A barrier of phases, as the hardware has them (mbarrier): a phase ends when as many have arrived as it awaits.
struct PhaseBarrier {
    struct Arrival {
        int actor, step;
        Clock clock;
    };
    struct Phase {
        int arrived = 0;
        std::vector<Arrival> arrivals;
        Clock clock;  ///< of all arrivals
    };
    /// A thread relied upon phases before this one having ended, and this one not.
    struct Reliance {
        int actor, step;
        std::size_t phase;
        std::string what;
    };

    int awaited = 1;
    std::vector<Phase> phases = {};
    std::vector<Reliance> reliances = {};

    [[nodiscard]] bool ended(std::size_t phase) const {
        return phase < phases.size() && phases[phase].arrived >= awaited;
    }
    /// The phase that arrivals belong to now.
    [[nodiscard]] std::size_t current() const {
        std::size_t phase = 0;
        while (ended(phase)) ++phase;
        return phase;
    }
    /// How many phases a thread knows to have ended.
    [[nodiscard]] std::size_t known_to(const Clock& clock) const {
        std::size_t phase = 0;
        while (ended(phase) && std::all_of(phases[phase].arrivals.begin(), phases[phase].arrivals.end(),
                                           [&](const Arrival& a) { return clock.of(a.actor) >= a.step; }))
            ++phase;
        return phase;
    }
    void arrive(int actor, int step, const Clock& clock, int count) {
        const std::size_t phase = current();
        if (phase >= phases.size()) phases.resize(phase + 1);
        phases[phase].arrived += count;
        phases[phase].arrivals.push_back({actor, step, clock});
        phases[phase].clock.join(clock);
    }
    /// The first thread that a phase may leave behind, so that it would wait for the next one; null if there is none.
    [[nodiscard]] const Reliance* left_behind() const {
        for (const Reliance& r : reliances) {
            if (!ended(r.phase)) continue;
            const auto& arrivals = phases[r.phase].arrivals;
            if (std::none_of(arrivals.begin(), arrivals.end(),
                             [&](const Arrival& a) { return a.clock.of(r.actor) >= r.step; }))
                return &r;
        }
        return nullptr;
    }
};

}  // namespace forge::kernel
