#include "target/hopper/cheapest.h"

#include <algorithm>
#include <optional>

#include "target/gpu_cost.h"
#include "target/hopper/group_times.h"
#include "target/hopper/role_schedules.h"
#include "target/hopper/scan_times.h"
#include "tile/fragments.h"

namespace forge::target {

using plan::Schedule;

namespace {

/// Of a call whose tasks are one warp group's each, or have roles.
double microseconds_of(const plan::Plan& plan, const PricedCall& call) {
    if (plan.schedule.output_groups == 0) return microseconds_of_groups(plan, call.problem, call.gpu);
    FitWishes wishes;
    wishes.expected_tokens = call.problem.tokens;
    wishes.expected_tasks = call.problem.sequences * call.problem.heads;
    return microseconds_of_call(plan, wishes, call.gpu.multiprocessors);
}

/// Whether scans, each of which waits for itself, take a fifth of the time or more.
bool waits_for_scans(const plan::Plan& plan, const PricedCall& call) {
    constexpr double kMuch = 1.0 / 5;
    double scans = 0;
    for (const plan::Kernel& kernel : plan.kernels)
        if (plan::has_fragments(kernel.engine) && plan::is_scan(kernel.graph.loop))
            scans += microseconds_of_scan(plan, kernel, extent_of_scan(plan, kernel, call.problem),
                                          call.gpu.multiprocessors);
    return scans > kMuch * microseconds_of_groups(plan, call.problem, call.gpu);
}

/// What a kernel holds of matrices at a time, in registers of a thread.
std::int64_t registers_of(const plan::Plan& plan, const std::string& kernel) {
    const auto found = std::find_if(plan.kernels.begin(), plan.kernels.end(),
                                    [&](const plan::Kernel& k) { return k.graph.name == kernel; });
    return found == plan.kernels.end() ? 0 : tile::fragment_registers(found->tiles.fn);
}

}  // namespace

Schedule cheapest(const std::vector<Schedule>& schedules, const FitSchedule& fit, const PricedCall& call) {
    std::vector<Refusal> refused;
    std::optional<Refused> first;
    std::optional<Schedule> best;
    Takes least;
    for (const Schedule& tried : schedules) try {
            const Schedule fitted = fit(tried);
            const plan::Plan plan = call.make_plan(fitted);
            const Takes takes{microseconds_of(plan, call), spill_bytes(plan, call.problem)};
            if (!best || takes.better_than(least)) best = fitted, least = takes;
        } catch (const Refused& why) {
            if (!first) first = why;
            refused.push_back(why.refusal());
            refused.back().engine = plan::to_string(tried.strategy);
        }
    if (!best) throw Refused(*first);
    best->refused.insert(best->refused.end(), refused.begin(), refused.end());
    return *best;
}

Schedule with_whole_kernels(Schedule s, const FitSchedule& fit, const PricedCall& call) {
    constexpr double kWorthIt = 0.95;
    constexpr std::int64_t kMostRegisters = 192;  // beyond which kernels spill
    Schedule best = fit(s);
    plan::Plan plan = call.make_plan(best);
    std::vector<std::string> cut;
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.graph.loop == plan::Loop::Chunks && kernel.cut.count > 1 && kernel.cut.axis == s.tile_axis)
            cut.push_back(kernel.graph.name);
    for (const std::string& name : cut) try {
            Schedule tried = s;
            tried.whole.insert(name);
            const Schedule fitted = fit(tried);
            plan::Plan whole = call.make_plan(fitted);
            if (registers_of(whole, name) > std::max(kMostRegisters, registers_of(plan, name))) continue;
            if (microseconds_of(whole, call) >= kWorthIt * microseconds_of(plan, call)) continue;
            s = tried, best = fitted, plan = std::move(whole);
        } catch (const Refused&) {  // then it is cut
        }
    return best;
}

Schedule with_less_in_scans(const Schedule& s, const ir::Function& program, const tile::Sizes& held,
                            const FitSchedule& fit, const PricedCall& call) {
    constexpr double kWorthIt = 0.9;
    std::vector<Schedule> ways = {s};
    if (Schedule early = s; !(early.early = early_states_for_others(program, held)).empty()) ways.push_back(early);
    const Schedule best = cheapest(ways, fit, call);
    if (best.share || !waits_for_scans(call.make_plan(best), call)) return best;
    for (Schedule& way : ways) way.share = true;
    try {
        const Schedule ahead = cheapest(ways, fit, call);
        return microseconds_of(call.make_plan(ahead), call) < kWorthIt * microseconds_of(call.make_plan(best), call)
                   ? ahead
                   : best;
    } catch (const Refused&) {  // then it stays as it is
        return best;
    }
}

}  // namespace forge::target
