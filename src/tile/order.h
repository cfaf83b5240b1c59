/// The order in which a kernel computes its values, and what is worth computing twice.
#pragma once

#include "ir/function.h"

namespace forge::tile {

/// What passes from one chunk to the next.
bool is_carried(ir::Role role);

/// Parameters first, then what outputs and spills need, then the rest: the old state is read before it is overwritten.
ir::Function ordered(const ir::Function& fn);

/// Whether an elementwise op costs more than a few instructions.
bool costly(ir::Opcode code);

}  // namespace forge::tile
