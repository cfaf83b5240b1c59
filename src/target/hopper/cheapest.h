/// Of several ways of fitting a program the one that takes least, by the times of hopper/fitted.h.
#pragma once

#include <functional>
#include <vector>

#include "target/cpu/cost.h"
#include "target/hopper/cut_outputs.h"

namespace forge::target {

/// A schedule made to fit. Refused if there is none.
using FitSchedule = std::function<plan::Schedule(const plan::Schedule&)>;

/// What a schedule is priced for.
struct PricedCall {
    const MakePlan& make_plan;
    Problem problem;
    const SharedMemory& gpu;
};

/// That of several schedules, made to fit, which takes the least: time, unless it is much memory (Takes). A kernel that
/// does less, for more traffic between kernels, may fit where others do not, or hold in registers what others would
/// spill.
plan::Schedule cheapest(const std::vector<plan::Schedule>& schedules, const FitSchedule& fit, const PricedCall& call);

/// Made to fit, with those kernels of single chunks that have all tiles of the value axis where that takes less: what
/// tiles have in common is then made once, and more of a matrix is held at a time.
plan::Schedule with_whole_kernels(plan::Schedule s, const FitSchedule& fit, const PricedCall& call);

/// Where matrices of tokens are made of states that need no others, these may come first, so that what is made of them
/// can be made ahead of the other scans, as may be all that their tasks have in common where these take long.
plan::Schedule with_less_in_scans(const plan::Schedule& s, const ir::Function& program, const tile::Sizes& held,
                                  const FitSchedule& fit, const PricedCall& call);

}  // namespace forge::target
