/// Schedules that are worth measuring on a GPU. There is no model of its costs to rank them: the list begins with what
/// is chosen unasked and the best guess of every strategy, and goes on to other cuts, engines and block sizes.
#pragma once

#include "forge/runtime.h"
#include "ir/function.h"
#include "plan/plan.h"
#include "schedule/gpu_facts.h"

namespace forge::gpu {

struct Candidate {
    CompileOptions options;  ///< that give this schedule and no other
    plan::Schedule schedule;
};

/// At most `most` different ones, within what `options` fix; the first is what would be taken unasked. `definition` in
/// its final types, `program` optimised from it.
std::vector<Candidate> candidates(const ir::Definition& definition, const ir::Function& program,
                                  const CompileOptions& options, const schedule::GpuFacts& device, std::size_t most);

}  // namespace forge::gpu
