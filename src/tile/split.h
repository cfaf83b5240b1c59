/// Long axes in blocks: a matrix of a kernel becomes several of 64 rows or columns, and a product over such an axis a
/// sum of products. A task then need not hold a whole state at a time, nor registers for all its columns. Parameters
/// and results say which part of a tensor or a spill they are (`ir::Attrs::at`, `ir::Result::at`).
#pragma once

#include "tile/lower.h"

namespace forge::tile {

/// Of a kernel whose states, if it carries any, are matrices: blocks of one are states of their own. Axes that an
/// operation takes apart or joins in another way stay whole.
ir::Function split_axes(const ir::Function& kernel, const Sizes& sizes);

}  // namespace forge::tile
