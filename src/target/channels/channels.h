/// Schedules for kernels in which a thread has a few channels of a vector state and walks over tokens (a GPU's engine
/// Channels). A pure function of plain data.
#pragma once

#include "target/simt/shared_memory.h"

namespace forge::target {

/// Refused if the program is no such program, or another strategy than one-pass is wished for. `threads`: per block; 0:
/// chosen. `multiprocessors`: of a GPU whose blocks can be started together and write each other's shared memory; 0 of
/// any other.
plan::Schedule fit_channels(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                            const FitWishes& wishes, int threads, int multiprocessors);

}  // namespace forge::target
