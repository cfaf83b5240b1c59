/// Makes a graph digestible for tile code: symbols become sizes; operands that a device function needs as dense tiles
/// get a Copy where they are views of another kind; numbers that are read as tiles get one too.
#pragma once

#include "tile/lower.h"

namespace forge::tile {

ir::Function legalize(const ir::Function& fn, const Sizes& sizes, const Rules& rules);

}  // namespace forge::tile
