/// The order of a kernel whose tiles are too many for a GPU's shared memory: values come shortly before they are read,
/// and inputs are loaded where they are wanted, a second time if that takes less memory than keeping them.
#pragma once

#include "tile/lower.h"

namespace forge::tile {

/// `fn`: with layouts, of which only the spaces count. `most`: floats of shared memory that tiles should fit into. The
/// result may need more; the tiles that are too many then lie in global memory (tile/far.h).
ir::Function compact(const ir::Function& fn, const Rules& rules, std::int64_t most);

}  // namespace forge::tile
