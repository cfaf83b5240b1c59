#include "build/hand_over.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include "build/cpu_library.h"

namespace forge::build {
namespace {

namespace fs = std::filesystem;

/// What stands between the quotes of its include lines.
std::vector<std::string> included_by(const std::string& text) {
    constexpr std::string_view kInclude = "#include \"";
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(kInclude))
            found.push_back(line.substr(kInclude.size(), line.find('"', kInclude.size()) - kInclude.size()));
    return found;
}

}  // namespace

std::vector<EmbeddedFile> headers_of(const std::string& source) {
    std::map<std::string, const EmbeddedFile*> known, needed;
    for (const EmbeddedFile& header : device_sources()) known.emplace(header.path, &header);
    const std::function<void(const std::string&, const fs::path&)> follow = [&](const std::string& text,
                                                                                const fs::path& folder) {
        for (const std::string& name : included_by(text)) {
            const auto header = known.find((folder / name).lexically_normal().generic_string());
            if (header != known.end() && needed.insert(*header).second)
                follow(header->second->text, fs::path(header->first).parent_path());
        }
    };
    follow(source, "");
    std::vector<EmbeddedFile> found;
    for (const auto& [unused, header] : needed) found.push_back(*header);
    return found;
}

std::string compile_script(const std::string& source_name, const std::string& target) {
    const std::string stem = fs::path(source_name).stem().string();
    const std::string begin =
        "#!/bin/sh\n# Compiles what Forge emitted, as Forge does.\ncd \"$(dirname \"$0\")\" && exec ";
    if (!target.starts_with("sm_"))
        return fmt::format("{}${{CXX:-g++}} {} -iquote . -o {}.so {}\n", begin, fmt::join(cpu_flags(target), " "), stem,
                           source_name);
    return fmt::format("{}${{NVCC:-nvcc}} -std=c++20 -cubin -gencode arch=compute_{},code={} -I. -o {}.cubin {}\n",
                       begin, target.substr(3), target, stem, source_name);
}

}  // namespace forge::build
