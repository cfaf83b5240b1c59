/// Schedules for kernels in which a thread has a few channels of a vector state and walks over tokens (a GPU's engine
/// Channels). A pure function of plain data.
#pragma once

#include <optional>

#include "schedule/shared_memory.h"

namespace forge::schedule {

/// nullopt if the program is no such program, or another strategy than one-pass is wished for. `threads`: per block.
std::optional<plan::Schedule> fit_channels(const ir::Definition& definition, const ir::Function& program, const FitWishes& wishes, int threads);

}  // namespace forge::schedule
