/// Runs a kernel's blocks of threads as fibers of one CPU thread, several blocks at a time, in an order that a seed
/// decides.
#pragma once

#include <functional>

#include "tests/cuda/emulated/machine.h"

namespace forge::emulated {

struct Grid {
    int blocks = 1, threads = 32;
    int cluster = 1;  ///< blocks that share memory; their number is a multiple of it
    std::size_t shared_bytes = 0;
    unsigned seed = 1;
};

/// Calls `kernel` once for every thread of every block. `machine` is the loaded kernel's. std::runtime_error if no
/// progress is made: every fiber waits for another block.
void run(Machine& machine, const Grid& grid, const std::function<void()>& kernel);

}  // namespace forge::emulated
