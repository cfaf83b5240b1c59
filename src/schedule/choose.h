/// From a program, a problem and a device to a Schedule: a pure function of plain data. Every strategy, chunk size,
/// split of the parallel axis and number of segments is priced (cost.h); a measurement of the same candidate, where the
/// tuning database has one, counts more than any price. The whole table comes back, for `forge explain`.
#pragma once

#include <optional>

#include "schedule/cost.h"

namespace forge::schedule {

/// Which rule decides between strategies.
enum class Rule : std::uint8_t {
    Cost,   ///< the cheapest candidate, or the fastest measured one
    Paper,  ///< fused or decoupled by the paper's Algorithm 1; the rest by cost
};
const char* to_string(Rule rule);
Rule rule_named(const std::string& name);  ///< RuntimeError for an unknown one

/// What the caller fixed; the rest is chosen. 0: chosen.
struct Wishes {
    std::optional<plan::Strategy> strategy;
    std::int64_t chunk = 0, tiles = 0, segments = 0;
    Rule rule = Rule::Cost;
};

/// A time from the tuning database, for this program, device and shape class.
struct Measurement {
    /// A share of the machine that others may have without spoiling a measurement.
    static constexpr double kQuiet = 0.05;
    plan::Schedule schedule;
    double seconds = 0;
    double others = 0;  ///< share of the cores, or of the GPU's time, that other processes had meanwhile
    [[nodiscard]] bool under_load() const { return others >= kQuiet; }
};
/// Whether two schedules make the same kernels: strategy, chunk, tiles, segments, and on a GPU engine and threads.
bool same_choice(const plan::Schedule& a, const plan::Schedule& b);

struct Candidate {
    plan::Schedule schedule;
    Cost cost;
    double measured_s = 0;  ///< 0: not measured
    std::string note;       ///< why it cannot be taken, or what it suffers from
    bool possible = true;
    bool under_load = false;  ///< measured while other processes were busy
};

struct Choice {
    plan::Schedule schedule;            ///< with the reason
    std::vector<Candidate> candidates;  ///< the chosen one first, then from cheap to expensive
    Floor floor;                        ///< at the chosen chunk size
    Device device;
    Problem problem;
};

/// `program` is joined and optimised from `definition`. RuntimeError if no candidate fulfils the wishes.
Choice choose_schedule(const ir::Definition& definition, const ir::Function& program, const Problem& problem,
                       const Device& device, const Wishes& wishes = {},
                       const std::vector<Measurement>& measurements = {});

/// The table of candidates with bytes, operations, tasks, hops and estimates, the reason for the choice, and the floor;
/// at most `most` candidates.
std::string explain(const Choice& choice, std::size_t most = 16);

}  // namespace forge::schedule
