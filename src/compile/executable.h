/// An entry point compiled for one target: what was decided for it, the sources, and the kernels, loaded. Immutable, so
/// that threads share it. compile/driver.h makes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "forge/runtime.h"
#include "plan/plan.h"
#include "runtime/kernels.h"
#include "target/target.h"

namespace forge::compiler {

struct Executable {
    plan::Plan plan;
    runtime::Callable callable;  ///< of the plan
    target::Choice choice;       ///< of the plan's schedule, with what else there was
    std::vector<GeneratedSource> sources;
    std::optional<target::GpuFacts> gpu;  ///< that the kernels are for; none: a CPU
    std::string isa;                      ///< avx512, …, or a GPU's architecture
    std::string cache_dir;                ///< where its binaries lie
    double flops_per_token = 0, build_seconds = 0;
    bool from_cache = false;
    std::unique_ptr<const runtime::Kernels> kernels;  ///< last: they refer to the callable
};

}  // namespace forge::compiler
