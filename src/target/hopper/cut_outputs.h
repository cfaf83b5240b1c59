/// Whether the outputs of a backward pass are made in two kernels, the second of which has a part of an axis per task
/// (plan::PlaceRules::outputs_axis), and along which axis.
#pragma once

#include <functional>
#include <optional>

#include "plan/plan.h"
#include "target/simt/shared_memory.h"

namespace forge::target {

using MakePlan = std::function<plan::Plan(const plan::Schedule&)>;

/// Of a task's tiles.
std::int64_t bytes_of_tiles(const plan::Kernel& kernel);

/// Outputs of much work are cut along an axis, if what all parts have in common is not most of it, and nothing is less
/// precise for that.
std::optional<plan::Schedule> with_cut_outputs(plan::Schedule s, const tile::Sizes& held, const SharedMemory& memory,
                                               const MakePlan& make_plan);

}  // namespace forge::target
