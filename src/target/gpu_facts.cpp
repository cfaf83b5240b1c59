#include "target/gpu_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "forge/error.h"
#include "support/embedded.h"
#include "support/environment.h"
#include "support/files.h"

namespace forge::target {
namespace {

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// One number that is the whole text, more than 0, and at most what no GPU will have.
template <class T>
bool read_positive(const std::string& text, T& value, T most) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= most;
}

struct Key {
    const char* form;  ///< what its values look like
    bool (*read)(GpuFacts& facts, const std::string& value);
};

bool read_capability(GpuFacts& facts, const std::string& value) {
    const std::size_t dot = value.find('.');
    if (dot == std::string::npos || !read_positive(value.substr(0, dot), facts.major, 99)) return false;
    return value.substr(dot) == ".0" || read_positive(value.substr(dot + 1), facts.minor, 9);
}

const std::map<std::string, Key>& keys() {
    static const std::map<std::string, Key> kKeys = {
        {"name", {"a text", [](GpuFacts& f, const std::string& value) { return !(f.name = value).empty(); }}},
        {"compute_capability", {"such as 9.0", read_capability}},
        {"multiprocessors",
         {"a whole number from 1 to 65536",
          [](GpuFacts& f, const std::string& value) { return read_positive(value, f.multiprocessors, 1 << 16); }}},
        {"shared_bytes_per_block",
         {"a whole number from 1 to 2^30",
          [](GpuFacts& f, const std::string& value) {
              return read_positive<std::int64_t>(value, f.shared_bytes, 1 << 30);
          }}},
        {"memory_bandwidth",
         {"bytes per second",
          [](GpuFacts& f, const std::string& value) { return read_positive(value, f.memory_bandwidth, 1e18); }}},
    };
    return kKeys;
}

}  // namespace

GpuFacts parse_facts(const std::string& text, const std::string& file) {
    GpuFacts facts;
    std::set<std::string> all;
    for (const auto& [key, unused] : keys()) all.insert(key);
    std::set<std::string> missing = all;
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        const std::string place = fmt::format("{}:{}", file, ++number);
        line = trimmed(line.substr(0, line.find('#')));
        if (line.empty()) continue;
        const std::size_t equals = line.find('=');
        const std::string key = trimmed(line.substr(0, equals));
        const auto known = keys().find(key);
        if (equals == std::string::npos || known == keys().end())
            throw RuntimeError(
                fmt::format("{}: expected key = value with one of {}; got '{}'", place, fmt::join(all, ", "), line));
        const std::string value = trimmed(line.substr(equals + 1));
        if (!known->second.read(facts, value))
            throw RuntimeError(fmt::format("{}: {}: expected {}, got '{}'", place, key, known->second.form, value));
        missing.erase(key);
    }
    if (!missing.empty())
        throw RuntimeError(fmt::format("{}: facts of a GPU: expected {} too", file, fmt::join(missing, ", ")));
    check_capability(facts, file);
    return facts;
}

std::vector<FactsFile> known_facts() {
    std::vector<FactsFile> known;
    for (const std::string& folder : support::facts_folders()) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(folder, error))
            if (entry.is_regular_file()) known.push_back({entry.path().filename().string(), entry.path().string()});
        if (error)
            throw RuntimeError(fmt::format("FORGE_FACTS: expected a folder with facts of GPUs, got '{}': {}", folder,
                                           error.message()));
    }
    for (const EmbeddedFile& file : fact_files()) known.push_back({file.path, ""});
    std::stable_sort(known.begin(), known.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return known;
}

GpuFacts facts_of(const std::string& name_or_path) {
    std::vector<std::string> names;
    std::string path = name_or_path;
    for (const FactsFile& known : known_facts()) {
        names.push_back(known.name);
        if (known.name != name_or_path) continue;
        path = known.path;
        break;
    }
    for (const EmbeddedFile& file : fact_files())
        if (path.empty() && file.path == name_or_path) return parse_facts(file.text, "facts/" + file.path);
    const auto text = std::filesystem::is_regular_file(path) ? support::read_file(path) : std::nullopt;
    if (!text)
        throw RuntimeError(fmt::format("on: expected {}, or a file with the facts of a GPU, got '{}'",
                                       fmt::join(names, ", "), name_or_path));
    return parse_facts(*text, path);
}

}  // namespace forge::target
