/// Runs blocks of warp-group kernels, one after the other, the last one first if the seed is even, their threads as
/// fibers in an order that the seed decides. A warp goes on until all its lanes wait; meanwhile copies come to an end,
/// or not.
#pragma once

#include <functional>

#include "tests/cuda/emulated/global_memory.h"
#include "tests/cuda/emulated/shared_memory.h"

namespace forge::emulated {

class Hardware;

struct WarpGrid {
    int blocks = 1, threads = 128;
    SharedMemory memory;  ///< of one block at a time
    const GlobalMemory& global;
    unsigned seed = 1;
    std::function<void()> kernel_before = nullptr;  ///< run when a thread first waits for it; null: it has ended
};

/// Calls `kernel` once for every thread of every block. `hardware` is the loaded kernel's. std::runtime_error if
/// threads wait for what never comes, or do what no GPU would.
void run_warps(Hardware*& hardware, const WarpGrid& grid, const std::function<void()>& kernel);

}  // namespace forge::emulated
