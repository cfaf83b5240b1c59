/// What portable kernels take on a GPU, roughly, from what was measured of them on an H200.
#pragma once

#include "forge/cost.h"
#include "plan/plan.h"
#include "target/gpu_facts.h"

namespace forge::target {

void predict_tiles_kernel(StageCost& cost, const plan::Kernel& kernel, const plan::Schedule& schedule,
                          const GpuFacts& gpu);
/// The times of all kernels and of the call, in a cost in which everything is counted.
void predict_tiles(CallCost& cost, const plan::Plan& plan, const GpuFacts& gpu);

}  // namespace forge::target
