#include "schedule/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "schedule/algorithm1.h"
#include "schedule/candidates.h"
#include "schedule/report.h"

namespace forge::schedule {
namespace {

using plan::Schedule;
using plan::Strategy;

/// Prices every schedule. Schedules that differ in segments alone share their plan.
std::vector<Candidate> price_all(const ir::Definition& definition, const ir::Function& program, const Problem& problem,
                                 const Device& device, const std::vector<Schedule>& schedules) {
    std::vector<Candidate> candidates;
    std::optional<plan::Plan> plan;
    for (const Schedule& s : schedules) {
        const bool same_kernels = plan && s.strategy == Strategy::Segmented && plan->schedule.strategy == s.strategy &&
                                  plan->schedule.chunk == s.chunk;
        if (same_kernels) plan->schedule.segments = s.segments;
        else plan = plan::make_plan(definition, program, problem.sizes, s);
        Candidate c{s, price(*plan, problem, device), 0, "", true};
        if (!c.cost.fits) c.note = "does not fit on chip", c.possible = false;
        else if (c.cost.tasks < device.slots)
            c.note = fmt::format("{} of {} {} busy", c.cost.tasks, device.slots, device.gpu ? "SMs" : "threads");
        candidates.push_back(std::move(c));
    }
    return candidates;
}

void add_measurements(std::vector<Candidate>& candidates, const std::vector<Measurement>& measurements) {
    for (Candidate& c : candidates)
        for (const Measurement& m : measurements)
            if (same_choice(c.schedule, m.schedule)) c.measured_s = m.seconds, c.under_load = m.under_load();
}

/// Measured before unmeasured, fast before slow; what is not possible comes last.
bool better(const Candidate& a, const Candidate& b) {
    if (a.possible != b.possible) return a.possible;
    const bool measured_a = a.measured_s > 0, measured_b = b.measured_s > 0;
    if (measured_a != measured_b) return measured_a;
    return measured_a ? a.measured_s < b.measured_s : a.cost.seconds < b.cost.seconds;
}

/// The sizes of the first state as the paper's d_k and d_v, with the device as its P_max and P_min.
Algorithm1 paper_rule(const ir::Definition& definition, const Problem& problem, const Device& device,
                      std::int64_t chunk) {
    Algorithm1Inputs in;
    in.batch = problem.sequences, in.tokens = problem.tokens, in.heads = problem.heads;
    const auto size = [&](std::size_t axis) {
        if (definition.states.empty() || axis >= definition.states[0].type.shape.size()) return std::int64_t{1};
        const Dim& d = definition.states[0].type.shape[axis];
        return d.factor * (d.is_constant() ? 1 : problem.sizes.at(d.symbol));
    };
    in.key_size = in.key_tile = size(0), in.value_size = in.value_tile = size(1);
    in.chunk = chunk;
    in.bandwidth = device.memory_bandwidth / device.slots;
    in.most_tasks = in.enough_tasks = device.slots;
    return algorithm1(in);
}

std::string how_asked(const Wishes& wishes) {
    std::vector<std::string> fixed;
    if (wishes.strategy) fixed.emplace_back(plan::to_string(*wishes.strategy));
    if (wishes.chunk) fixed.push_back(fmt::format("chunk {}", wishes.chunk));
    if (wishes.tiles) fixed.push_back(fmt::format("{} tiles", wishes.tiles));
    if (wishes.segments) fixed.push_back(fmt::format("{} segments", wishes.segments));
    return fmt::format("{}", fmt::join(fixed, ", "));
}

}  // namespace

const char* to_string(Rule rule) {
    switch (rule) {
        case Rule::Cost:
            return "cost";
        case Rule::Paper:
            return "paper";
    }
    return "?";
}

Rule rule_named(const std::string& name) {
    for (const Rule rule : {Rule::Cost, Rule::Paper})
        if (name == to_string(rule)) return rule;
    throw RuntimeError(fmt::format("rule: expected cost or paper, got '{}'", name));
}

bool same_choice(const Schedule& a, const Schedule& b) {
    return a.strategy == b.strategy && a.chunk == b.chunk && a.tiles == b.tiles && a.segments == b.segments &&
           (a.tiles == 1 || a.tile_axis == b.tile_axis) && a.engine == b.engine && a.block_threads == b.block_threads;
}

Choice choose_schedule(const ir::Definition& definition, const ir::Function& program, const Problem& problem,
                       const Device& device, const Wishes& wishes, const std::vector<Measurement>& measurements) {
    Wishes taken = wishes;
    constexpr std::int64_t kPaperChunk = 64;
    std::string rule;
    if (wishes.rule == Rule::Paper && !wishes.strategy) {
        const Algorithm1 a = paper_rule(definition, problem, device, wishes.chunk ? wishes.chunk : kPaperChunk);
        taken.strategy = a.strategy;
        rule = a.saturated ? fmt::format("Algorithm 1: {} tasks saturate {} slots", a.fused_tasks, device.slots)
                           : fmt::format("Algorithm 1: fused {:.2e} s against decoupled {:.2e} s per chunk", a.fused_s,
                                         a.decoupled_s);
    }
    Choice choice{{},
                  price_all(definition, program, problem, device, enumerate_schedules(program, problem, device, taken)),
                  {},
                  device,
                  problem};
    if (choice.candidates.empty())
        throw RuntimeError(fmt::format("{}: no schedule with {}", definition.name, how_asked(taken)));
    add_measurements(choice.candidates, measurements);
    std::stable_sort(choice.candidates.begin(), choice.candidates.end(), better);
    choice.schedule = choice.candidates[0].schedule;
    choice.schedule.reason = rule.empty() ? reason_of(choice, how_asked(wishes)) : rule;
    choice.candidates[0].schedule.reason = choice.schedule.reason;
    choice.floor = floor_of(plan::make_plan(definition, program, problem.sizes, choice.schedule), problem, device);
    return choice;
}

}  // namespace forge::schedule
