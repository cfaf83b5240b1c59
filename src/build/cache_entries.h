/// What lies in a cache, for people who look after it: which files belong together, whether they are what was written,
/// and their removal.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace forge::build {

struct CacheEntry {
    enum class Kind : std::uint8_t {
        CpuKernels,    ///< of one program, with their source
        GpuKernels,    ///< … with the assembler's report
        Headers,       ///< of this version of the device library
        OldHeaders,    ///< of another version
        Measurements,  ///< of `forge tune`
        Leftover       ///< of a compilation that did not come to its end, or is under way
    } kind = Kind::Leftover;
    std::string name;   ///< what its files' names begin with
    std::string about;  ///< of kernels: strategy, chunk and sizes
    std::vector<std::filesystem::path> files;
    std::int64_t bytes = 0;
    std::time_t changed = 0;  ///< the last of its files
};
const char* to_string(CacheEntry::Kind kind);

/// The entries of a directory, by name; none if there is no such directory. Files of other kinds are left out.
/// RuntimeError if it cannot be read.
std::vector<CacheEntry> cache_entries(const std::filesystem::path& directory);

/// How an entry is not what was written; nothing if it is. The next compilation makes again what is damaged.
std::optional<std::string> damage_of(const CacheEntry& entry);

/// RuntimeError if a file cannot be removed; one that is gone is no mistake.
void remove(const CacheEntry& entry);

}  // namespace forge::build
