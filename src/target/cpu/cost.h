/// The price of a plan: what each kernel moves, computes and waits for on a device, as plain data. A pure function of
/// program, problem and device; it knows no variant and measures nothing.
#pragma once

#include "target/cpu/device.h"
#include "target/cpu/work.h"

namespace forge::target {

/// The shape of the calls to expect.
struct Problem {
    tile::Sizes sizes;
    std::int64_t tokens = 4096, sequences = 1, heads = 4;
    DType state_dtype = F32;  ///< of initial and final states in memory
};

/// How often a kernel's body runs: how many times in order, and in how many tasks.
struct Extent {
    std::int64_t tasks = 1, hops = 1;
};
Extent extent(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem);

/// Of what passes between kernels.
double spill_bytes(const plan::Plan& plan, const Problem& problem);
/// Of inputs and outputs with tokens.
double token_bytes(const plan::Plan& plan, const Problem& problem);

struct KernelCost {
    std::string name;
    std::int64_t tasks = 0;
    std::int64_t hops = 0;  ///< chunks (or segments) in order per task
    double flops = 0;       ///< useful
    double bytes = 0;       ///< from and to memory, each byte of a kernel once
    /// Read again by other tiles, or passed on by other kernels, through the cache that slots share.
    double again_bytes = 0;
    double compute_s = 0, move_s = 0, wait_s = 0, seconds = 0;
};

struct Cost {
    std::vector<KernelCost> kernels;
    double bytes = 0, again_bytes = 0, spill_bytes = 0, flops = 0;
    double compute_s = 0, move_s = 0, wait_s = 0;
    double seconds = 0;      ///< the estimate: kernels one after the other, computing and moving partly at once
    std::int64_t tasks = 0;  ///< of the kernel that takes longest
    std::int64_t hops = 0;   ///< of all kernels
    bool fits = true;        ///< in a slot's own memory, where that is a limit
};

Cost price(const plan::Plan& plan, const Problem& problem, const Device& device);

/// What no schedule can be faster than: inputs and outputs once over the memory's bandwidth, and the useful operations
/// of this chunk size over the peak.
struct Floor {
    double bytes = 0, flops = 0, memory_s = 0, compute_s = 0;
    [[nodiscard]] double seconds() const { return memory_s > compute_s ? memory_s : compute_s; }
};
Floor floor_of(const plan::Plan& plan, const Problem& problem, const Device& device);

}  // namespace forge::target
