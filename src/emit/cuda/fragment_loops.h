/// Elementwise work of a warp group: over the spots of a fragment, two neighbours at a time, or over the vectors of a
/// tile or an operand, four. Operands of the loop may be fragments of the same form, tiles, operands and decay masks.
#pragma once

#include "emit/context.h"

namespace forge::emit {

void write_fragment_loop(Context& context, ir::ValueId root);

}  // namespace forge::emit
