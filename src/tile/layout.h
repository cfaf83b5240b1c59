/// Layouts as values: the strides of a view from those of what it views.
#pragma once

#include "ir/function.h"
#include "tile/lower.h"

namespace forge::tile {

/// The layout of a view op (permute, unsqueeze, squeeze, select, slice, part, expand) over `base`, which lays out a
/// value of type `from`.
ir::Layout view_layout(const ir::Op& op, const ir::Type& from, const ir::Layout& base);

/// The layout that a value will have if every op that is no view gets a buffer of its own.
ir::Layout eventual_layout(const ir::Function& fn, ir::ValueId v, const Rules& rules);

/// Whether the last axis is stored densely, as device functions want it.
bool contiguous_rows(const ir::Type& type, const ir::Layout& layout);

}  // namespace forge::tile
