/// Puts into a kernel's statements what its threads must wait for, from what the statements read and write:
///
/// * a barrier before what touches memory that something since the last barrier wrote, or writes what that read;
/// * waits for products before their results are read, or memory that they read is written: for as few as can be;
/// * for what passes through channels, waits before it is first read or written, the announcement after it is written,
///   and the release of all that a chunk read as soon as its last reader, or product, is done;
/// * waits for stores before memory is written that they may still read;
/// * `Later` where products are under way for the first time, so that the copies which it begins run beside them.
///
/// Barriers that stand in the statements already are not relied upon, unless they stand in one line with a wait.
#pragma once

#include "kernel/kernel.h"

namespace forge::kernel {

void synchronise(Kernel& kernel);

}  // namespace forge::kernel
