#include "runtime/gpu_facts.h"

#include <fmt/format.h>

#include "forge/error.h"

namespace forge::runtime {
namespace {

constexpr int kOldestMajor = 8;

}  // namespace

std::string GpuFacts::arch() const { return fmt::format("sm_{}{}{}", major, minor, major == 9 ? "a" : ""); }

std::string GpuFacts::tuning_class() const { return fmt::format("{} x {}", name, multiprocessors); }

std::string to_string(const GpuFacts& f) {
    return fmt::format(
        "{}: compute capability {}.{}, {} multiprocessors, {} bytes of shared memory per block, {:.0f} GB/s of memory",
        f.name, f.major, f.minor, f.multiprocessors, f.shared_bytes, f.memory_bandwidth * 1e-9);
}

void check_capability(const GpuFacts& facts, const std::string& where) {
    if (facts.major < kOldestMajor)
        throw RuntimeError(fmt::format("{} ({}): expected compute capability {}.0 or later, got {}.{}", where,
                                       facts.name, kOldestMajor, facts.major, facts.minor));
}

}  // namespace forge::runtime
