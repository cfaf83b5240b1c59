/// What is asked of a GPU to plan, emit and compile for it, and to launch on it, as plain data: read from its driver
/// (runtime/cuda_driver) or from a file of facts (target/gpu_facts.h), so that it need not be there.
#pragma once

#include <cstdint>
#include <string>

namespace forge::runtime {

struct GpuFacts {
    std::string name;
    int major = 0, minor = 0;  ///< compute capability
    int multiprocessors = 0;
    std::int64_t shared_bytes = 0;  ///< that one block of threads can have
    /// Bytes per second, read and written together, that the memory's clock and width allow.
    double memory_bandwidth = 0;

    [[nodiscard]] std::string arch() const;          ///< sm_80; sm_90a: with what only this chip has
    [[nodiscard]] std::string tuning_class() const;  ///< what a measurement holds for: "NVIDIA H200 x 132"
};
/// "NVIDIA H200: compute capability 9.0, 132 multiprocessors, …".
std::string to_string(const GpuFacts& facts);

/// RuntimeError if there are no kernels for a GPU; `where`: which it is, for the message.
void check_capability(const GpuFacts& facts, const std::string& where);

}  // namespace forge::runtime
