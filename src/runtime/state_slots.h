/// Which slots of a pool of states the sequences of a call read and write. Where the slots lie on the host, they are
/// checked: that they are in the pool, and that the sequences, which run at once, do not depend on one another.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

/// Fills in the slots and, on the host, takes their tokens from the sequences that are skipped. RuntimeError for slots
/// of another type or shape and, on the host, for slots outside the pool, a slot that two sequences write, and one that
/// a sequence reads and another one writes.
void bind_slots(const Callable& callable, const Arguments& call, Lengths lengths, Bound& bound);

}  // namespace forge::runtime
