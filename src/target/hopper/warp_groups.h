/// Schedules for kernels on a Hopper GPU's warp-group matrix units: 64 tokens per chunk, 64 columns of the value axis
/// per task, and several warp groups with roles (tile/roles.h) where a task has a multiprocessor to itself, else one. A
/// pure function of plain data.
#pragma once

#include "target/simt/shared_memory.h"

namespace forge::target {

/// Refused if the program or the wishes do not admit such kernels.
plan::Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                               const SharedMemory& memory, const FitWishes& wishes);

}  // namespace forge::target
