/// Elementwise work of a warp group: over the spots of a fragment, two neighbours at a time, or over the vectors of a
/// tile or an operand, four. Operands of the loop may be fragments of the same form, tiles, operands and decay masks.
#pragma once

#include "emit/context.h"

namespace forge::emit {

/// `joined`: what stands in the same loop.
void write_fragment_loop(Context& context, ir::ValueId root, const std::vector<ir::ValueId>& joined = {});

/// A sum over the rows or columns of a matrix, of which the threads evaluate what they would hold of it as a fragment.
/// `work`: the place of tile::fragment_work_floats.
void write_fragment_sum(Context& context, ir::ValueId sum, const std::string& work);

}  // namespace forge::emit
