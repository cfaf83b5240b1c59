/// `forge compose`, and the variants of parts that other commands take.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/command/command.h"

namespace forge::tests {
namespace {

TEST(CommandCompose, PrintsAndWritesWhatIsChosen) {
    const auto printed = forge_command({"compose", "--decay", "scalar", "--update", "oja"}, false);
    EXPECT_EQ(printed.status, 0) << printed.output;
    EXPECT_EQ(printed.output.find("linear_attention @composed_scalar_oja {"), 0u) << printed.output;
    const std::string path = std::string(FORGE_TEST_CACHE) + "/composed.forge";
    std::filesystem::create_directories(FORGE_TEST_CACHE);
    EXPECT_EQ(forge_command({"compose", "--decay", "scalar", "--update", "oja", "-o", path}, false).status, 0);
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(text.str(), printed.output);
}

TEST(CommandCompose, ListsTheChoices) {
    const auto done = forge_command({"compose", "--list"}, false);
    EXPECT_EQ(done.status, 0);
    for (const char* line : {"--discretise", "zero-order-hold  (1 - decay) k vᵀ", "elu              elu(x) + 1"})
        EXPECT_TRUE(contains(done.output, line)) << done.output;
}

TEST(CommandCompose, RefusesWithTheReason) {
    const auto refused = forge_command({"compose", "--decay", "value", "--update", "delta"}, false);
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.output, "forge: compose: update='delta' reads the state with a key"))
        << refused.output;
    const auto unknown = forge_command({"explain", "compose:update=hebb"}, false);
    EXPECT_EQ(unknown.status, 1);
    EXPECT_TRUE(contains(unknown.output, "argument 'update': expected additive, delta, oja")) << unknown.output;
    const auto half = forge_command({"explain", "compose:update"}, false);
    EXPECT_TRUE(contains(half.output, "expected PART=CHOICE, such as update=delta; got 'update'")) << half.output;
}

TEST(CommandCompose, TakesFunctionsOfAFile) {
    const std::string path = std::string(FORGE_TEST_CACHE) + "/blocks.txt";
    std::filesystem::create_directories(FORGE_TEST_CACHE);
    std::ofstream(path) << "func @mask {\n"
                           "  %i: f32[] = param() {name=\"i\", role=input}\n"
                           "  %j: f32[] = param() {name=\"j\", role=input}\n"
                           "  %d: f32[] = sub(%i, %j)\n"
                           "  %n: f32[] = constant() {value=3}\n"
                           "  %m: bool[] = lt(%d, %n)\n"
                           "  return input \"mask\" = %m\n}\n";
    const auto made = forge_command({"compose", "--functions", path, "--features", "elu"}, false);
    EXPECT_EQ(made.status, 0) << made.output;
    EXPECT_TRUE(contains(made.output, "state keys: f32[2, K]")) << made.output;
    const auto refused = forge_command({"explain", "compose:update=delta,functions=" + path}, false);
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.output, "a mask weighs what is added, and update='delta'")) << refused.output;
    EXPECT_EQ(forge_command({"compose", "--functions", path + ".not"}, false).status, 1);
}

TEST(CommandCompose, IsAVariantOfOtherCommands) {
    const auto done = forge_command({"explain", "compose:decay=vector,update=delta,name=mine", "--on", "h200", "--K",
                                     "64", "--V", "64", "--stop-after", "join"},
                                    false);
    EXPECT_EQ(done.status, 0) << done.output;
    EXPECT_TRUE(contains(done.output, "func @mine")) << done.output;
}

}  // namespace
}  // namespace forge::tests
