/// What a schedule is chosen for, as plain data: the calls to expect, the machine, what the caller fixed, and what was
/// measured before.
#pragma once

#include <optional>
#include <variant>

#include "target/cpu/cost.h"
#include "target/gpu_facts.h"

namespace forge::target {

/// Which rule decides between strategies on a CPU.
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
    std::optional<plan::Engine> engine;  ///< of a GPU's
    int threads = 0;                     ///< per task, of a GPU's
    friend bool operator==(const Wishes&, const Wishes&) = default;
};
/// "fused, chunk 64"; empty if nothing is fixed.
std::string to_string(const Wishes& wishes);
/// What gives this schedule and no other, on a CPU or a GPU.
Wishes wishes_of(const plan::Schedule& schedule, bool gpu);

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

/// A CPU as it was measured or stored, or a GPU, which need not be there.
using Machine = std::variant<Device, GpuFacts>;

/// How the program goes through a sequence: as kernels like, unless Wishes::chunk says otherwise, or token by token
/// through the few that a decode call has.
enum class Walk : std::uint8_t { Forwards, Backwards, Tokens };

/// Everything about a choice but the program.
struct Question {
    Problem problem;
    Machine machine;
    Wishes wishes;
    Walk walk = Walk::Forwards;
    std::vector<Measurement> measurements;

    /// Forwards by chunks of one token, whatever calls have of them.
    [[nodiscard]] bool by_token() const {
        return walk == Walk::Tokens || (walk == Walk::Forwards && wishes.chunk == 1);
    }
    [[nodiscard]] const GpuFacts* gpu() const { return std::get_if<GpuFacts>(&machine); }
    [[nodiscard]] const Device& cpu() const { return std::get<Device>(machine); }
};

}  // namespace forge::target
