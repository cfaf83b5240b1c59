/// What the scheduler knows of a machine, as plain data: how many tasks run at once, how fast each computes and moves
/// bytes. The numbers of a CPU are stored per instruction set, or measured once (probe.h); those of the GPUs come from
/// data sheets and from what published kernels sustain. Nothing is measured here.
#pragma once

#include <cstdint>
#include <string>

namespace forge::target {

struct Device {
    std::string name = "plain";     ///< the key of measurements: "avx512", "h100"
    std::string about;              ///< where the numbers come from, for people
    double others = 0;              ///< share of the cores that other processes had while it was measured
    int slots = 1;                  ///< tasks that run at once: CPU threads, or SMs
    std::int64_t vector_width = 4;  ///< floats per vector of the emitted code
    bool gpu = false;

    // One slot's arithmetic.
    double product_flops = 4e10;      ///< peak of products, FLOP/s (a multiply-add is two)
    double product_efficiency = 0.8;  ///< of the peak, that long products reach
    double call_s = 3e-8;             ///< what starting one product or scan costs
    double vector_s = 5e-10;          ///< one simple operation on one vector that lies in the nearest cache
    double exp_s = 5e-9;              ///< one exponential (logarithm, division, …) of a vector

    std::int64_t near_bytes = 0;  ///< of the nearest cache: work on less is faster; 0: makes no difference

    // Moving bytes, bytes/s.
    double memory_bandwidth = 1e10;        ///< of all slots together, sustained
    double slot_bandwidth = 1e10;          ///< what one slot alone gets from memory
    double cache_bandwidth = 3e10;         ///< of all slots together, from the last cache, which they share
    double piece_bytes = 0;                ///< what each separate piece of memory costs, as bytes moved; 0: nothing
    std::int64_t cache_bytes = 1 << 25;    ///< of that cache
    std::int64_t on_chip_bytes = 1 << 20;  ///< one slot's own memory (CPU: L2; GPU: shared memory and registers)
    bool on_chip_is_limit = false;         ///< tasks that need more cannot run (GPU)
    double overlap = 0.5;  ///< how much of the shorter of computing and moving hides behind the other, 0 to 1

    // Waiting.
    double launch_s = 5e-6;  ///< starting one kernel on all slots, and waiting for its end
    double hop_s = 1e-7;     ///< from one chunk to the next within a task
};

/// The stored numbers of an instruction set (avx512, avx2, plain) with so many threads.
Device cpu_device(const std::string& isa, int threads);
Device h100_sxm();
Device h200();

/// Peak FLOP/s of products and sustained bytes/s of memory, of all slots.
std::string to_string(const Device& device);

}  // namespace forge::target
