/// Rules of the repository that no compiler checks: what may be named and included where, and documents that must be up
/// to date.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/repository/ops_page.h"
#include "tests/support/expected.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

/// Text files below a folder of the repository.
std::vector<fs::path> files_in(const std::string& folder) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(root() / folder))
        if (entry.is_regular_file()) found.push_back(entry.path());
    return found;
}

template <class Visit>
void each_line(const fs::path& file, Visit visit) {
    std::istringstream text(read_file(file));
    std::string line;
    for (int number = 1; std::getline(text, line); ++number)
        visit(line, fs::relative(file, root()).string() + ":" + std::to_string(number));
}

// A new variant is one short file: the compiler must not know any by name.
TEST(Repository, NoVariantIsNamedInTheCompiler) {
    const std::regex names("gated_?delta|delta_?net|gdn|kda|retnet|retention|mamba|hgrn|rwkv|lightning|scalar_gla|hawk",
                           std::regex::icase);
    for (const char* folder : {"src", "device", "include"})
        for (const fs::path& file : files_in(folder))
            each_line(file, [&](const std::string& line, const std::string& where) {
                EXPECT_FALSE(std::regex_search(line, names)) << where << ": " << line;
            });
}

/// Folders of src/ from the ground up: each includes from itself and from those before it.
const std::vector<std::string> kFolders = {"support", "runtime", "rt",      "ir",     "frontend", "graph", "program",
                                           "interp",  "tile",    "plan",    "kernel", "emit",     "build", "target",
                                           "tune",    "compile", "package", "check",  "gpu",      "dist",  "capi"};

TEST(Repository, FoldersIncludeOnlyFromThoseBelow) {
    std::map<std::string, std::size_t> height;
    for (std::size_t i = 0; i < kFolders.size(); ++i) height[kFolders[i]] = i;
    const std::regex include("^#include \"([a-z]+)/");
    for (const fs::path& file : files_in("src")) {
        const std::string folder = *fs::relative(file, root() / "src").begin();
        ASSERT_TRUE(height.contains(folder)) << "src/" << folder << " has no place in kFolders";
        each_line(file, [&](const std::string& line, const std::string& where) {
            std::smatch match;
            if (!std::regex_search(line, match, include) || !height.contains(match[1]))
                return;  // forge/ and device/ are open to all
            EXPECT_LE(height.at(match[1]), height.at(folder)) << where << ": " << line;
        });
    }
}

TEST(Repository, OnlyTheEnvironmentReadsTheEnvironment) {
    for (const fs::path& file : files_in("src"))
        if (file.stem() != "environment")
            each_line(file, [&](const std::string& line, const std::string& where) {
                EXPECT_EQ(line.find("getenv"), std::string::npos) << where;
            });
}

TEST(Repository, TheListOfOperationsIsUpToDate) { EXPECT_TRUE(same_as_file(root() / "docs/ops.md", ops_page())); }

/// The part of a text from a beginning to an end (without it).
std::string part_of(const std::string& text, const std::string& from, const std::string& to) {
    const std::size_t begin = text.find(from);
    return begin == std::string::npos ? "" : text.substr(begin, text.find(to, begin) - begin);
}

TEST(Readme, ShowsTheFilesAsTheyAre) {
    const std::string readme = read_file(root() / "README.md");
    const std::string variant =
        part_of(read_file(root() / "variants/scalar_gla.cpp"), "LinearAttention scalar_gla()", "\n}  // namespace");
    ASSERT_FALSE(variant.empty());
    EXPECT_NE(readme.find(variant), std::string::npos) << "variants/scalar_gla.cpp has changed";
    EXPECT_NE(readme.find(read_file(root() / "examples/call.cpp")), std::string::npos)
        << "examples/call.cpp has changed";
}

TEST(Readme, ListsEveryVariant) {
    const std::string readme = read_file(root() / "README.md");
    for (const auto& entry : variants::all())
        EXPECT_NE(readme.find("[`" + entry.name + "`](variants/" + entry.name + ".cpp) | " + entry.summary + " | " +
                              entry.source),
                  std::string::npos)
            << entry.name;
}

}  // namespace
}  // namespace forge::tests
