#include "schedule/device.h"

#include <fmt/format.h>

#include "forge/error.h"

namespace forge::schedule {
namespace {

/// What the instruction sets share: an EPYC of 2025 in a virtual machine, 2 threads (see docs/scheduling.md).
Device cpu_of(const std::string& isa, std::int64_t width, double peak) {
    Device d;
    d.name = isa;
    d.about = "stored numbers";
    d.vector_width = width;
    d.product_flops = peak;
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
    d.product_flops = 800e12 / kSms;       // bf16, dense, at the clock that products sustain (989 nominal)
    d.product_efficiency = 0.7;            // WGMMA with M = 64 and operands from registers
    d.call_s = 4e-8;                       // a dependent group of WGMMAs
    d.vector_s = 16 / (128 * kClock);      // 128 lanes per SM
    d.exp_s = 16 / (16 * kClock);          // 16 special-function results per SM and clock
    d.memory_bandwidth = sustained;
    d.slot_bandwidth = 4 * sustained / kSms;  // an SM alone keeps some 100 KB in flight
    d.cache_bandwidth = 5.5e12;
    d.cache_bytes = 50 << 20;
    d.on_chip_bytes = static_cast<std::int64_t>((227 + 256) * kKiB);  // shared memory and registers
    d.on_chip_is_limit = true;
    d.overlap = 0.9;
    d.launch_s = 3e-6;
    d.hop_s = 3e-7;                        // barriers of the pipeline and the state's way through registers
    return d;
}

}  // namespace

Device cpu_device(const std::string& isa, int threads) {
    constexpr double kClock = 4.0e9;
    Device d = isa == "avx512" ? cpu_of(isa, 16, 64 * kClock) : isa == "avx2" ? cpu_of(isa, 8, 32 * kClock) : cpu_of(isa, 4, 8 * kClock);
    d.slots = threads;
    return d;
}

Device h100_sxm() { return hopper("h100", "H100 SXM, 80 GB HBM3: 3.35 TB/s nominal", 3.0e12); }
Device h200() { return hopper("h200", "H200 SXM, 141 GB HBM3e: 4.8 TB/s nominal", 4.2e12); }

Device device_named(const std::string& name, const std::string& isa, int threads) {
    if (name == "cpu") return cpu_device(isa, threads);
    if (name == "h100") return h100_sxm();
    if (name == "h200") return h200();
    throw RuntimeError(fmt::format("device: expected cpu, h100 or h200, got '{}'", name));
}

std::string to_string(const Device& d) {
    return fmt::format("{} ({}): {} {}, {:.0f} GFLOP/s, memory {:.1f} GB/s, cache {:.1f} GB/s", d.name, d.about, d.slots,
                       d.gpu ? "SMs" : d.slots == 1 ? "thread" : "threads", d.slots * d.product_flops * 1e-9, d.memory_bandwidth * 1e-9,
                       d.cache_bandwidth * 1e-9);
}

}  // namespace forge::schedule
