/// What is asked of a GPU to plan, emit and compile for it, as plain data: read from its driver (runtime/cuda_driver)
/// or from a file of facts, so that it need not be there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::target {

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

/// A text of lines "key = value", with comments after '#'. RuntimeError, with file and line, for what is missing,
/// unknown or no number, and for a GPU that is too old.
GpuFacts parse_facts(const std::string& text, const std::string& file);

/// A GPU that can be named.
struct FactsFile {
    std::string name;
    std::string path;  ///< empty: it comes with Forge
};
/// Those of $FORGE_FACTS, and of facts/, which come after the former of the same name.
std::vector<FactsFile> known_facts();

/// "h200" or another name of these, or the path of such a file; RuntimeError if it is neither.
GpuFacts facts_of(const std::string& name_or_path);

/// RuntimeError if there are no kernels for a GPU; `where`: which it is, for the message.
void check_capability(const GpuFacts& facts, const std::string& where);

}  // namespace forge::target
