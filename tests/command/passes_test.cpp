/// What the command shows of passes: for a GPU that is not there, so that nothing is compiled.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/command/command.h"

namespace forge::tests {
namespace {

support::Finished on_h200(const char* command, std::vector<std::string> words) {
    words.insert(words.begin(), {command, "scalar_gla", "--on", "h200", "--K", "64", "--V", "64"});
    return forge_command(words, false);
}

TEST(CommandPasses, AreDumpedTimedAndStoppedAfter) {
    for (const char* command : {"explain", "emit"}) {
        const auto one = on_h200(command, {"--dump", "after:stabilize"});
        EXPECT_EQ(one.status, 0) << one.output;
        EXPECT_EQ(one.output.find("// ---- stabilize (graph): "), 0u) << one.output;
        EXPECT_TRUE(contains(one.output, "decay_mask(")) << one.output;
        const auto all = on_h200(command, {"--dump", "all"});
        EXPECT_TRUE(contains(all.output, "// ---- join (program)") && contains(all.output, "// ---- emit (text)"));
        const auto last = on_h200(command, {"--stop-after", "place"});
        EXPECT_TRUE(contains(last.output, "// ---- place (kernel, kernel scalar_gla_scan)")) << last.output;
        EXPECT_FALSE(contains(last.output, "fragment_forms"));
        const auto times = on_h200(command, {"--times"});
        EXPECT_TRUE(contains(times.output, "fragment_memory") && contains(times.output, "\nall ")) << times.output;
    }
    for (const char* wrong : {"after:nothing", "stabilize", "after:lay_out"}) {
        const auto done = on_h200("explain", {"--dump", wrong});
        EXPECT_EQ(done.status, 1);
        EXPECT_TRUE(contains(done.output, "expected")) << done.output;
    }
}

TEST(CommandPasses, AreBisected) {
    const auto done = on_h200("explain", {"--bisect"});
    EXPECT_EQ(done.status, 0) << done.output;
    EXPECT_TRUE(contains(done.output, "Every pass leaves the results those of the recurrence.")) << done.output;
}

TEST(CommandPasses, AreAPage) {
    const std::string path = std::string(FORGE_TEST_CACHE) + "/passes.html";
    std::filesystem::create_directories(FORGE_TEST_CACHE);
    EXPECT_EQ(on_h200("explain", {"--html", path}).status, 0);
    std::ostringstream page;
    page << std::ifstream(path).rdbuf();
    EXPECT_EQ(page.str().find("<!DOCTYPE html>"), 0u);
}

}  // namespace
}  // namespace forge::tests
