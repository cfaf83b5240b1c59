/// The tuning database on GPUs: how a measured schedule is asked for again. Schedules of GPUs follow from compile
/// options alone, so that the options which give the fastest one are all that has to be found.
#pragma once

#include "forge/runtime.h"
#include "tune/database.h"

namespace forge::tune {

/// `device`: a GPU's name and its number of multiprocessors, as "NVIDIA H200 x 132".
Key gpu_key(const ir::Function& program, const CompileOptions& options, const std::string& device);

/// The options that give this schedule, whatever is measured later.
CompileOptions asking_for(CompileOptions options, const plan::Schedule& schedule);

/// The options of the fastest schedule that was measured for a key, if the caller leaves every choice open; nothing
/// otherwise.
std::optional<CompileOptions> tuned_options(const CompileOptions& options, const Key& key);

}  // namespace forge::tune
