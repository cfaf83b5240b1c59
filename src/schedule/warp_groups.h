/// Schedules for kernels on a Hopper GPU's warp-group matrix units: one warp group per task, 64 tokens per chunk, 64 columns
/// of the value axis per task. A pure function of plain data.
#pragma once

#include "schedule/shared_memory.h"

namespace forge::schedule {

/// plan::NotForWarpGroups, with the reason, if the program or the wishes do not admit such kernels.
plan::Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes, const SharedMemory& memory,
                               const FitWishes& wishes);

}  // namespace forge::schedule
