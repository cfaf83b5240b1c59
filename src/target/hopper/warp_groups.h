/// Schedules for kernels that hold fragments: 64 tokens per chunk, 64 columns of the value axis per task. On a Hopper
/// GPU's warp-group matrix units several warp groups have roles (tile/roles.h) where a task has a multiprocessor to
/// itself; else, and where warps multiply by themselves, one group does everything. A pure function of plain data.
#pragma once

#include "target/simt/shared_memory.h"

namespace forge::target {

constexpr int kGroupThreads = 128;

/// Refused if the program or the wishes do not admit such kernels.
plan::Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                               const SharedMemory& memory, const FitWishes& wishes);

}  // namespace forge::target
