/// Layouts as values: the strides of a view from those of what it views.
#pragma once

#include "ir/function.h"

namespace forge::tile {

/// The layout of a view op (permute, unsqueeze, squeeze, select, slice, expand) over `base`, which lays out a value of
/// type `from`.
ir::Layout view_layout(const ir::Op& op, const ir::Type& from, const ir::Layout& base);

/// Whether the last axis is stored densely, as device functions want it.
bool contiguous_rows(const ir::Type& type, const ir::Layout& layout);

}  // namespace forge::tile
