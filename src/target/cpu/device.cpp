#include "target/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge::target {
namespace {

/// Fitted on a virtual machine of an EPYC of 2025 (Zen 5), to 168 kernels of seven variants at one thread; times of
/// single operations were fitted at 512 bits, and are taken as the same per vector elsewhere. What differs most between
/// machines, peak and bandwidths, `forge tune --probe` measures and stores; for every candidate `forge tune VARIANT`
/// prints what these numbers predict beside what it measures.
Device cpu_of(const std::string& isa, std::int64_t width, double flops_per_cycle) {
    constexpr double kClock = 3.8e9;
    Device d;
    d.name = isa;
    d.about = "stored numbers";
    d.vector_width = width;
    d.product_flops = flops_per_cycle * kClock;
    d.product_efficiency = 0.87;
    d.call_s = 4e-8;
    d.vector_s = 9.5e-11;  // between two and three per cycle: loads and arithmetic go side by side
    d.exp_s = 2.5e-9;
    d.hop_s = 1e-7;
    d.near_bytes = 48 << 10;
    d.piece_bytes = 256;
    d.overlap = 0;  // a tile is loaded, then worked on
    return d;
}

/// A Hopper GPU; `sustained` is what streaming kernels reach of the memory's nominal bandwidth.
Device hopper(const char* name, const char* about, double sustained) {
    constexpr double kKiB = 1024, kClock = 1.755e9, kSms = 132;
    Device d;
    d.name = name;
    d.about = about;
    d.gpu = true;
    d.slots = static_cast<int>(kSms);
    d.vector_width = 16;
    d.product_flops = 800e12 / kSms;   // bf16, dense, at the clock that products sustain (989 nominal)
    d.product_efficiency = 0.7;        // WGMMA with M = 64 and operands from registers
    d.call_s = 4e-8;                   // a dependent group of WGMMAs
    d.vector_s = 16 / (128 * kClock);  // 128 lanes per SM
    d.exp_s = 16 / (16 * kClock);      // 16 special-function results per SM and clock
    d.memory_bandwidth = sustained;
    d.slot_bandwidth = 4 * sustained / kSms;  // an SM alone keeps some 100 KB in flight
    d.cache_bandwidth = 5.5e12;
    d.cache_bytes = 50 << 20;
    d.on_chip_bytes = static_cast<std::int64_t>((227 + 256) * kKiB);  // shared memory and registers
    d.on_chip_is_limit = true;
    d.overlap = 0.9;
    d.launch_s = 3e-6;
    d.hop_s = 3e-7;  // barriers of the pipeline and the state's way through registers
    return d;
}

}  // namespace

Device cpu_device(const std::string& isa, int threads) {
    constexpr double kSlotMemory = 24e9, kSlotCache = 31e9, kMemory = 36e9;
    Device d = isa == "avx512" ? cpu_of(isa, 16, 64) : isa == "avx2" ? cpu_of(isa, 8, 32) : cpu_of(isa, 4, 16);
    d.slots = threads;
    d.slot_bandwidth = kSlotMemory;
    d.memory_bandwidth = std::min(threads * kSlotMemory, std::max(kMemory, threads * kMemory / 4));
    d.cache_bandwidth = threads * kSlotCache;
    return d;
}

Device h100_sxm() { return hopper("h100", "H100 SXM, 80 GB HBM3: 3.35 TB/s nominal", 3.0e12); }
Device h200() { return hopper("h200", "H200 SXM, 141 GB HBM3e: 4.8 TB/s nominal", 4.2e12); }

std::string to_string(const Device& d) {
    return fmt::format("{} ({}): {} {}, {:.0f} GFLOP/s, memory {:.1f} GB/s, cache {:.1f} GB/s", d.name, d.about,
                       d.slots,
                       d.gpu          ? "SMs"
                       : d.slots == 1 ? "thread"
                                      : "threads",
                       d.slots * d.product_flops * 1e-9, d.memory_bandwidth * 1e-9, d.cache_bandwidth * 1e-9);
}

}  // namespace forge::target
