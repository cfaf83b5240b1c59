/// Elementwise work on all rows of tokens that have several, of which only the first, the second, … of each are read,
/// is done on these: they are read where an input has them, and what is multiplied needs no copy of floats.
#pragma once

#include "ir/function.h"

namespace forge::tile {

/// Whether every other row of anything is read.
bool has_rows_apart(const ir::Function& kernel);
/// The function itself if there is no such work.
ir::Function with_rows_apart(const ir::Function& kernel);

}  // namespace forge::tile
