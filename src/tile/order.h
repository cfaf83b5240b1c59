/// The order in which a kernel computes its values, and what is worth computing twice.
#pragma once

#include "ir/function.h"

namespace forge::tile {

/// What passes from one chunk to the next.
bool is_carried(ir::Role role);
/// With a parameter for every carried value, even one that nothing reads: it has a place from chunk to chunk, and a
/// sequence without chunks leaves it as it was.
ir::Function with_carried_params(ir::Function fn);

/// Parameters first, then what outputs and spills need, then the rest: the old state is read before it is overwritten.
ir::Function ordered(const ir::Function& fn);

/// Whether an elementwise op costs more than a few instructions.
bool costly(ir::Opcode code);

}  // namespace forge::tile
