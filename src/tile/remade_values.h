/// What little elementwise work on a chunk's inputs several operations of a warp group read is done again by each of
/// them, from the inputs in shared memory, rather than kept there as floats, which take twice as much of it.
#pragma once

#include "tile/lower.h"

namespace forge::tile {

/// The function itself if there is nothing of the kind. Operations that multiply matrices share one such value.
ir::Function with_remade_values(const ir::Function& kernel, const Sizes& sizes);

}  // namespace forge::tile
