/// Shared memory of kernels whose threads hold states and have the next ones come (Schedule::states_ahead): behind the
/// tiles lies that to which the states of a block's next task come.
#pragma once

#include "plan/plan.h"

namespace forge::emit {

/// In floats, from the first tile on.
std::int64_t floats_of_tiles(const plan::Kernel& kernel);

/// What comes for a state of this type, in floats.
std::int64_t coming_floats(const plan::Plan& plan, const ir::Type& state);
/// … for all states of the kernel that goes through sequences; 0: none come.
std::int64_t coming_floats(const plan::Plan& plan);

}  // namespace forge::emit
