#include "build/cache_entries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "build/cache.h"
#include "forge/error.h"
#include "support/embedded.h"
#include "support/files.h"

namespace forge::build {
namespace {

namespace fs = std::filesystem;
using Kind = CacheEntry::Kind;

/// What a file or directory of the cache is part of, by its name: the entry's name and kind.
std::optional<std::pair<std::string, Kind>> owner_of(const fs::directory_entry& file) {
    const std::string name = file.path().filename().string();
    const auto before = [&](const char* ending, Kind kind) -> std::optional<std::pair<std::string, Kind>> {
        if (!name.ends_with(ending)) return std::nullopt;
        return std::pair(name.substr(0, name.size() - std::string_view(ending).size()), kind);
    };
    if (name.ends_with(".tmp")) return std::pair(name, Kind::Leftover);
    if (file.is_directory() && name.starts_with("device-"))
        return std::pair(name, name == headers_name() ? Kind::Headers : Kind::OldHeaders);
    if (!file.is_regular_file()) return std::nullopt;
    if (name == "tuning.jsonl" || (name.starts_with("device-") && name.ends_with(".json")))
        return std::pair(name, Kind::Measurements);
    for (const auto& [ending, kind] : {std::pair{".cubin.log", Kind::GpuKernels},
                                       {".cubin", Kind::GpuKernels},
                                       {".cu", Kind::GpuKernels},
                                       {".so", Kind::CpuKernels},
                                       {".o", Kind::CpuKernels},
                                       {".cpp", Kind::CpuKernels}})
        if (auto found = before(ending, kind)) return found;
    return std::nullopt;
}

void add_file(CacheEntry& entry, const fs::path& file) {
    struct stat about{};
    if (lstat(file.c_str(), &about) != 0) return;  // gone meanwhile
    entry.files.push_back(file);
    entry.bytes += about.st_size;
    entry.changed = std::max(entry.changed, about.st_mtime);
}

/// The second and third line of a source, which are comments: the schedule and the sizes.
std::string title_of(const CacheEntry& entry) {
    for (const fs::path& file : entry.files) {
        if (file.extension() != ".cpp" && file.extension() != ".cu") continue;
        std::istringstream lines(support::read_file(file).value_or(""));
        std::string line, about;
        for (int i = 0; i < 3 && std::getline(lines, line) && line.starts_with("// "); ++i)
            if (i > 0) about += (about.empty() ? "" : "; ") + line.substr(3);
        return about;
    }
    return "";
}

std::optional<std::string> damage_of_headers(const CacheEntry& entry) {
    std::map<std::string, std::string> texts;
    for (const EmbeddedFile& header : device_sources()) texts.emplace(header.path, header.text);
    std::set<std::string> seen;
    for (const fs::path& file : entry.files) {
        const std::string path = file.lexically_relative(entry.files.front()).generic_string();
        const auto text = texts.find(path);
        if (text == texts.end()) continue;  // a directory
        seen.insert(path);
        if (support::read_file(file) != text->second) return path + " is not what this version has";
    }
    if (seen.size() < texts.size()) return fmt::format("{} headers are missing", texts.size() - seen.size());
    return std::nullopt;
}

std::optional<std::string> damage_of_kernels(const CacheEntry& entry) {
    for (const fs::path& file : entry.files) {
        const std::string extension = file.extension().string();
        if (extension == ".cpp" || extension == ".cu") continue;  // compared with what is wanted when they are used
        try {
            if (!Cache(file.parent_path()).sealed(file.filename().string()))
                return file.filename().string() + " is not what its seal says";
        } catch (const RuntimeError& foreign) {
            return foreign.what();
        }
    }
    return std::nullopt;
}

}  // namespace

const char* to_string(Kind kind) {
    switch (kind) {
        case Kind::CpuKernels:
            return "CPU kernels";
        case Kind::GpuKernels:
            return "GPU kernels";
        case Kind::Headers:
            return "headers";
        case Kind::OldHeaders:
            return "headers of another version";
        case Kind::Measurements:
            return "measurements";
        case Kind::Leftover:
            return "leftover";
    }
    return "?";
}

std::vector<CacheEntry> cache_entries(const fs::path& directory) {
    std::map<std::pair<std::string, Kind>, CacheEntry> found;
    std::error_code error;
    fs::directory_iterator files(directory, error);
    if (error == std::errc::no_such_file_or_directory) return {};
    if (error) throw RuntimeError(fmt::format("cannot read '{}': {}", directory.string(), error.message()));
    for (const fs::directory_entry& file : files) {
        const auto owner = owner_of(file);
        if (!owner) continue;
        CacheEntry& entry = found[*owner];
        entry.name = owner->first, entry.kind = owner->second;
        add_file(entry, file.path());
        if (file.is_symlink() || !file.is_directory()) continue;
        for (const auto& inside : fs::recursive_directory_iterator(file.path(), error)) add_file(entry, inside.path());
    }
    std::vector<CacheEntry> entries;
    for (auto& [unused, entry] : found) {
        entry.about = title_of(entry);
        entries.push_back(std::move(entry));
    }
    return entries;
}

std::optional<std::string> damage_of(const CacheEntry& entry) {
    switch (entry.kind) {
        case Kind::CpuKernels:
        case Kind::GpuKernels:
            return damage_of_kernels(entry);
        case Kind::Headers:
            return damage_of_headers(entry);
        case Kind::OldHeaders:
        case Kind::Measurements:
        case Kind::Leftover:
            break;
    }
    return std::nullopt;
}

void remove(const CacheEntry& entry) {
    std::error_code error;
    for (const fs::path& file : entry.files) {
        fs::remove_all(file, error);
        if (error) throw RuntimeError(fmt::format("cannot remove '{}': {}", file.string(), error.message()));
    }
}

}  // namespace forge::build
