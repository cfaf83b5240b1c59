/// Proves that a kernel's threads cannot read what is not there yet or overwrite what is still read, whatever the order
/// in which they run and in which copies and products end. Loops are unrolled until all buffers have been used several
/// times; what is known at a statement follows from barriers, phases and waits alone. It is a hazard if
///
/// * two accesses of which one writes touch the same bytes, or a thread's register, and neither is known to come after
///   the other has ended: of threads, copies, stores, products, or the kernel before;
/// * something is read that nothing has written, for the chunk that it is read for;
/// * a product or a store reads what a thread wrote without a fence of that thread in between;
/// * a thread waits for a phase that never ends, arrives in one that another may not have left, or may be left behind
/// by
///   two phases;
/// * a copy or store is under way when the kernel ends.
///
/// What a device function does with its own barriers is its own matter, as are tasks of different blocks.
#pragma once

#include "kernel/kernel.h"

namespace forge::kernel {

/// In words, each pair of statements once; empty: there is none.
std::vector<std::string> find_hazards(const Kernel& kernel);

/// InternalError with all of them, if there are any.
void verify(const Kernel& kernel);

}  // namespace forge::kernel
