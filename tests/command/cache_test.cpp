/// forge cache: what it lists, what it finds damaged, what it removes; and what forge emit hands over.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "build/nvrtc.h"
#include "support/files.h"
#include "tests/command/command.h"
#include "tests/support/directory.h"
#include "tests/support/environment_variable.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class CacheCommand : public testing::Test {
  protected:
    void SetUp() override {
        const auto done = run({"check-compile", "linear_attention", "--K", "16", "--V", "16"});
        ASSERT_EQ(done.status, 0) << done.output;
    }
    [[nodiscard]] support::Finished run(const std::vector<std::string>& words) const {
        return forge_command(words, false, directory_.path());
    }
    [[nodiscard]] Json report(std::vector<std::string> words, int status = 0) const {
        words.insert(words.begin(), "cache"), words.emplace_back("--json");
        const auto done = run(words);
        EXPECT_EQ(done.status, status) << done.output;
        return Json::parse(done.output);
    }
    [[nodiscard]] static std::vector<std::string> kinds(const Json& report) {
        std::vector<std::string> found;
        for (const auto& entry : report["entries"]) found.push_back(entry["kind"]);
        std::sort(found.begin(), found.end());
        return found;
    }
    [[nodiscard]] fs::path file(const std::string& extension) const {
        for (const auto& entry : fs::directory_iterator(directory_.path()))
            if (entry.path().extension() == extension) return entry.path();
        return {};
    }
    /// A file or directory of so many seconds ago.
    void add(const std::string& name, std::time_t age) const {
        const fs::path path = fs::path(directory_.path()) / name;
        std::ofstream(path) << "left over";
        const utimbuf then{std::time(nullptr) - age, std::time(nullptr) - age};
        ASSERT_EQ(utime(path.c_str(), &then), 0);
    }

    const Directory directory_{"cache_command"};
};

TEST_F(CacheCommand, ListsWhatLiesThere) {
    const Json listed = report({"list"});
    EXPECT_EQ(listed["directory"], directory_.path());
    EXPECT_EQ(kinds(listed), (std::vector<std::string>{"CPU kernels", "headers"}));
    for (const auto& entry : listed["entries"]) {
        EXPECT_GT(entry["bytes"].get<int>(), 1000);
        if (entry["kind"] != "CPU kernels") continue;
        EXPECT_TRUE(contains(entry["name"], "linear_attention-"));
        EXPECT_TRUE(contains(entry["about"], "chunk ") && contains(entry["about"], "K = 16, V = 16")) << entry["about"];
    }
    const auto table = run({"cache", "list"});
    EXPECT_TRUE(contains(table.output, "CPU kernels") && contains(table.output, "2 entries of")) << table.output;
    const auto empty = forge_command({"cache", "list"}, false, directory_.path() + "/nowhere");
    EXPECT_TRUE(empty.status == 0 && contains(empty.output, "0 entries")) << empty.output;
    EXPECT_FALSE(fs::exists(directory_.path() + "/nowhere"));
}

TEST_F(CacheCommand, FindsWhatIsDamaged) {
    EXPECT_TRUE(contains(run({"cache", "verify"}).output, "2 entries of"));
    EXPECT_EQ(run({"cache", "verify"}).status, 0);
    const fs::path so = file(".so");
    fs::resize_file(so, fs::file_size(so) - 1);
    const auto done = run({"cache", "verify"});
    EXPECT_EQ(done.status, 1);
    EXPECT_TRUE(contains(done.output, "DAMAGED: " + so.filename().string() + " is not what its seal says") &&
                contains(done.output, "1 damaged"))
        << done.output;
    const Json verified = report({"verify"}, 1);
    EXPECT_EQ(std::count_if(verified["entries"].begin(), verified["entries"].end(),
                            [](const Json& entry) { return entry.contains("damage"); }),
              1);
    SetUp();  // compiles it again
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path()))
        if (entry.path().filename() == "vec.h") std::ofstream(entry.path(), std::ios::app) << "// more\n";
    EXPECT_TRUE(contains(run({"cache", "verify"}).output, "is not what this version has"));
}

TEST_F(CacheCommand, RemovesWhatIsAskedFor) {
    add("build.1.0123456789abcdef.tmp", 7200), add("build.2.0123456789abcdef.tmp", 60), add("tuning.jsonl", 0);
    EXPECT_EQ(kinds(report({"prune"})), std::vector<std::string>{"leftover"});
    EXPECT_EQ(kinds(report({"prune", "--older-than", "1", "--max-size", "1GB"})), std::vector<std::string>{});
    const utimbuf long_ago{0, 0};
    for (const char* extension : {".so", ".cpp"}) ASSERT_EQ(utime(file(extension).c_str(), &long_ago), 0);
    EXPECT_EQ(kinds(report({"prune", "--older-than", "1"})), std::vector<std::string>{"CPU kernels"});
    EXPECT_EQ(kinds(report({"list"})), (std::vector<std::string>{"headers", "leftover", "measurements"}));
    SetUp();
    EXPECT_EQ(kinds(report({"prune", "--max-size", "1kB"})), std::vector<std::string>{"CPU kernels"});
    SetUp();
    EXPECT_EQ(kinds(report({"prune", "--all"})), (std::vector<std::string>{"CPU kernels", "headers"}));
    EXPECT_EQ(kinds(report({"list"})), (std::vector<std::string>{"leftover", "measurements"}));
    EXPECT_EQ(run({"cache", "prune", "--max-size", "much"}).status, 2);
    EXPECT_EQ(run({"cache"}).status, 2);
}

TEST_F(CacheCommand, NeedsNotWhatEmitHandsOver) {
    const Directory to("emitted");
    const auto done = run({"emit", "linear_attention", "--K", "16", "--V", "16", "-o", to.path()});
    ASSERT_EQ(done.status, 0) << done.output;
    ASSERT_EQ(run({"cache", "prune", "--all"}).status, 0);
    const auto compiled = support::run_process({to.path() + "/linear_attention.cpp.sh"});
    EXPECT_EQ(compiled.status, 0) << compiled.output;
    EXPECT_GT(fs::file_size(to.path() + "/linear_attention.so"), 1000U);
    EXPECT_FALSE(fs::exists(to.path() + "/cuda")) << "not included";
    EXPECT_TRUE(
        contains(run({"emit", "linear_attention", "-o", "/proc/nowhere"}).output, "cannot write '/proc/nowhere/"));
}

TEST_F(CacheCommand, NeedsNoCompilerForSourcesAndExplanations) {
    const EnvironmentVariable none("FORGE_CXX", "/nowhere/g++");
    const Directory to("emitted");
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"emit"}, {"emit", "-o", to.path()}, {"explain"}, {"explain", "--json"}}) {
        std::vector<std::string> command = words;
        command.insert(command.begin() + 1, {"linear_attention", "--K", "32", "--V", "32"});
        const auto done = run(command);
        EXPECT_EQ(done.status, 0) << done.output;
    }
    EXPECT_NE(run({"run", "linear_attention", "--K", "32", "--V", "32", "--T", "16"}).status, 0);
}

TEST_F(CacheCommand, NeedsNotWhatEmitHandsOverForAGpu) {
    if (!build::Nvrtc::find()) GTEST_SKIP() << "no libnvrtc on this machine";
    for (const char* variant : {"linear_attention", "hgrn"}) {
        const Directory to("emitted_cuda");
        const auto done = run({"emit", variant, "--on", "h200", "-o", to.path()});
        ASSERT_EQ(done.status, 0) << done.output;
        const std::string source = to.path() + "/" + variant + ".cu", script = *support::read_file(source + ".sh");
        EXPECT_TRUE(contains(script, "nvcc} -std=c++20 -cubin -gencode arch=compute_90a,code=sm_90a")) << script;
        const auto made = build::Nvrtc::find()->compile(
            source, *support::read_file(source),
            {"-std=c++20", "--device-debug", "--gpu-architecture=compute_90a", "-I" + to.path()});
        EXPECT_TRUE(made.ok) << made.log;
    }
}

}  // namespace
}  // namespace forge::tests
