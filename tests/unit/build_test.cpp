/// Compiling and caching emitted code, running programs, hashing, the environment.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "build/cpu_library.h"
#include "forge/error.h"
#include "support/environment.h"
#include "support/hash.h"
#include "support/process.h"
#include "tests/support/directory.h"
#include "tests/support/environment_variable.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

const std::string kSource =
    "#include \"cpu/kernel.h\"\nextern \"C\" __attribute__((visibility(\"default\"))) int answer() { return 42; }\n";

TEST(CpuLibrary, IsCompiledOnceAndThenCached) {
    const Directory cache("cache");
    const auto first = build::build_cpu_library("answer", kSource, "plain", cache.path());
    EXPECT_FALSE(first->from_cache());
    EXPECT_EQ(reinterpret_cast<int (*)()>(first->symbol("answer"))(), 42);
    EXPECT_TRUE(build::build_cpu_library("answer", kSource, "plain", cache.path())->from_cache());
    EXPECT_FALSE(build::build_cpu_library("answer", kSource + "\n// changed\n", "plain", cache.path())->from_cache());
    EXPECT_FALSE(build::build_cpu_library("answer", kSource, "avx2", cache.path())->from_cache());
    for (const auto& entry : fs::directory_iterator(cache.path())) EXPECT_NE(entry.path().extension(), ".tmp");
}

TEST(CpuLibrary, SaysWhichPackageLacks) {
    const Directory cache("no-compiler");
    const EnvironmentVariable missing("FORGE_CXX", "/nowhere/g++");
    const std::string message =
        message_of<RuntimeError>([&] { build::build_cpu_library("answer", kSource, "plain", cache.path()); });
    EXPECT_EQ(message,
              "no C++ compiler: expected /nowhere/g++ on the PATH, found none; install one (Debian: apt-get install "
              "g++) or set FORGE_CXX");
}

TEST(CpuLibrary, RefusesUnknownInstructionSets) {
    const Directory cache("isa");
    EXPECT_EQ(message_of<RuntimeError>([&] { build::build_cpu_library("answer", kSource, "sse", cache.path()); }),
              "isa: expected auto, avx512, avx2 or plain, got 'sse'");
}

TEST(CpuLibrary, NamesACacheThatCannotBeMade) {
    const std::string message =
        message_of<RuntimeError>([&] { build::build_cpu_library("answer", kSource, "plain", "/proc/forge"); });
    EXPECT_EQ(message.find("cache directory '/proc/forge': cannot be made ("), 0U) << message;
    EXPECT_NE(message.find("FORGE_CACHE_DIR"), std::string::npos);
}

TEST(CpuLibrary, ShowsWhatTheCompilerSaid) {
    const Directory cache("broken");
    const std::string message = message_of<InternalError>(
        [&] { build::build_cpu_library("broken", "int f() { return x; }", "plain", cache.path()); });
    EXPECT_NE(message.find("was not declared in this scope"), std::string::npos) << message;
}

TEST(Process, ReturnsStatusAndOutput) {
    const auto well = support::run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
    EXPECT_EQ(well.status, 3);
    EXPECT_EQ(well.output, "out\nerr\n");
    const auto missing = support::run_process({"/nowhere/program"});
    EXPECT_EQ(missing.status, 127);
    EXPECT_EQ(missing.output, "cannot start /nowhere/program");
    EXPECT_EQ(support::run_process({"sh", "-c", "kill -9 $$"}).status, 128 + 9);
    EXPECT_EQ(support::run_process({"sh", "-c", "head -c 200000 /dev/zero"}).output.size(), 200000U);
}

TEST(Process, TakesVariables) {
    setenv("FORGE_TEST_VARIABLE", "here", 1);
    EXPECT_EQ(support::run_process({"sh", "-c", "echo $FORGE_TEST_VARIABLE $FORGE_OTHER"}).output, "here\n");
    EXPECT_EQ(support::run_process({"sh", "-c", "echo $FORGE_TEST_VARIABLE $FORGE_OTHER"},
                                   {"FORGE_OTHER=two", "FORGE_TEST_VARIABLE=one"})
                  .output,
              "one two\n");
    unsetenv("FORGE_TEST_VARIABLE");
}

// A timer interrupts every wait, and nothing is cut short; where the system discards what becomes of children, nobody
// takes that for success.
TEST(Process, IsNotDisturbedBySignals) {
    struct sigaction action{}, before{};
    action.sa_handler = [](int) {};  // without SA_RESTART: calls of the system end with EINTR
    sigaction(SIGALRM, &action, &before);
    const itimerval often{{0, 1000}, {0, 1000}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    const auto done = support::run_process({"sh", "-c", "for i in 1 2 3 4 5; do sleep 0.02; echo $i; done; exit 3"});
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before, nullptr);
    EXPECT_EQ(done.output, "1\n2\n3\n4\n5\n");
    EXPECT_EQ(done.status, 3);
    EXPECT_TRUE(done.known);
    signal(SIGCHLD, SIG_IGN);
    EXPECT_FALSE(support::run_process({"sh", "-c", "exit 3"}).known);
    signal(SIGCHLD, SIG_DFL);
}

TEST(Process, FindsPrograms) {
    EXPECT_FALSE(support::find_program("sh").empty());
    EXPECT_EQ(support::find_program("/bin/sh"), "/bin/sh");
    EXPECT_EQ(support::find_program("no-such-program"), "");
    EXPECT_EQ(support::find_program("/etc/passwd"), "");  // not executable
}

TEST(Hash, IsOfTheContent) {
    EXPECT_EQ(support::hash("a").size(), 32U);
    EXPECT_EQ(support::hash("a"), support::hash("a"));
    EXPECT_NE(support::hash("a"), support::hash("b"));
    EXPECT_NE(support::hash(""), support::hash(std::string(1, '\0')));
}

TEST(Environment, TakesEmptyForAbsent) {
    setenv("FORGE_TEST_VARIABLE", "", 1);
    EXPECT_EQ(support::environment("FORGE_TEST_VARIABLE"), std::nullopt);
    setenv("FORGE_TEST_VARIABLE", "x", 1);
    EXPECT_EQ(support::environment("FORGE_TEST_VARIABLE"), "x");
    unsetenv("FORGE_TEST_VARIABLE");
    EXPECT_GE(support::core_count(), 1);
    const std::string isa = support::machine_isa();
    EXPECT_TRUE(isa == "avx512" || isa == "avx2" || isa == "plain") << isa;
}

}  // namespace
}  // namespace forge::tests
