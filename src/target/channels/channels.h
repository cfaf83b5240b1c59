/// Schedules for kernels in which a thread has a few channels of a vector state and walks over tokens (a GPU's engine
/// Channels), and what these take. Pure functions of plain data.
#pragma once

#include "forge/cost.h"
#include "target/simt/shared_memory.h"

namespace forge::target {

/// Refused if the program is no such program, or another strategy than one-pass is wished for. `threads`: per block; 0:
/// chosen. `multiprocessors`: of a GPU whose blocks can be started together and write each other's shared memory; 0 of
/// any other. `shared_bytes`: that a block of threads can have; 0: as many as it takes.
plan::Schedule fit_channels(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                            const FitWishes& wishes, int threads, int multiprocessors, std::int64_t shared_bytes = 0);

/// The times of the kernel and of the call, in a cost in which everything is counted.
void predict_channels(CallCost& cost, const plan::Plan& plan);

}  // namespace forge::target
