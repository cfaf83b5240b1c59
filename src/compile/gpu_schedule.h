/// The schedule of a program on a GPU, which need not be there: what the caller asked for, of the first engine that can
/// have the program.
#pragma once

#include "forge/runtime.h"
#include "plan/plan.h"
#include "schedule/gpu_facts.h"

namespace forge::compiler {

plan::Schedule cuda_schedule(const ir::Definition& definition, const ir::Function& program,
                             const CompileOptions& options, const schedule::GpuFacts& device);

}  // namespace forge::compiler
