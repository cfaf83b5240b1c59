#include "tests/support/expected.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace forge::tests {
namespace {

constexpr std::size_t kContext = 2;     ///< equal lines shown around a difference
constexpr std::size_t kMostLines = 24;  ///< of a diff

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// The part between the longest common beginning and end, with some context.
std::string short_diff(const std::vector<std::string>& expected, const std::vector<std::string>& got) {
    const std::size_t shorter = std::min(expected.size(), got.size());
    std::size_t head = 0, tail = 0;
    while (head < shorter && expected[head] == got[head]) ++head;
    while (tail < shorter - head && expected[expected.size() - 1 - tail] == got[got.size() - 1 - tail]) ++tail;
    std::ostringstream diff;
    diff << "first difference in line " << head + 1 << " (- expected, + got):\n";
    const auto show = [&](const char* mark, const std::vector<std::string>& lines, std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            if (i - from == kMostLines) {
                diff << mark << "… " << to - i << " more lines\n";
                return;
            }
            diff << mark << lines[i] << "\n";
        }
    };
    show("  ", expected, head - std::min(head, kContext), head);
    show("- ", expected, head, expected.size() - tail);
    show("+ ", got, head, got.size() - tail);
    show("  ", expected, expected.size() - tail, std::min(expected.size(), expected.size() - tail + kContext));
    return diff.str();
}

}  // namespace

std::filesystem::path root() { return FORGE_ROOT; }

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

bool updating() { return std::getenv("FORGE_UPDATE") != nullptr; }

void write_file(const std::filesystem::path& path, const std::string& text) {
    if (std::filesystem::exists(path) && read_file(path) == text) return;
    std::ofstream(path, std::ios::binary) << text;
}

testing::AssertionResult same_text(const std::string& expected, const std::string& got) {
    if (expected == got) return testing::AssertionSuccess();
    return testing::AssertionFailure() << short_diff(lines_of(expected), lines_of(got));
}

testing::AssertionResult same_as_file(const std::filesystem::path& path, const std::string& got) {
    if (updating()) write_file(path, got);
    if (!std::filesystem::exists(path))
        return testing::AssertionFailure() << path << " is missing; run scripts/update-tests";
    return same_text(read_file(path), got) << "(" << path << "; if the change is wanted, run scripts/update-tests)";
}

}  // namespace forge::tests
