/// Warp groups that share a task (tile/roles.h) share no memory but what one hands to another. What little both need of
/// a tile's values is therefore made by each.
#pragma once

#include <string>

#include "ir/function.h"

namespace forge::tile {

/// With elementwise values of the axis that read no state made twice, for carried states and for outputs, where both
/// need them. What lacks the axis is left alone: a kernel ahead can make it for all tiles.
ir::Function with_own_values(const ir::Function& kernel, const std::string& axis);

}  // namespace forge::tile
