/// What can happen to a cache of built code: somebody else's files, files cut short, full disks, a missing compiler,
/// another place, many that compile at once.
#include "build/cache.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "build/cpu_library.h"
#include "forge/error.h"
#include "support/environment.h"
#include "tests/support/directory.h"
#include "tests/support/environment_variable.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

const std::string kSource =
    "#include \"cpu/kernel.h\"\nextern \"C\" __attribute__((visibility(\"default\"))) int answer() { return 42; }\n";

std::shared_ptr<build::CpuLibrary> answer(const std::string& cache) {
    return build::build_cpu_library("answer", kSource, "plain", cache);
}

int call(const build::CpuLibrary& library) {
    return reinterpret_cast<int (*)()>(library.symbol("answer"))();  // NOLINT: dlsym
}

mode_t mode_of(const fs::path& file) {
    struct stat about{};
    EXPECT_EQ(lstat(file.c_str(), &about), 0) << file;
    return about.st_mode & 07777U;
}

std::vector<fs::path> files_in(const std::string& cache, const std::string& extension) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(cache))
        if (entry.is_regular_file() && entry.path().extension() == extension) found.push_back(entry.path());
    return found;
}

void cut_short(const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }

/// What `run` throws in a child process, whose limits and file systems may be spoilt; empty if nothing.
template <class Run>
std::string message_in_child(Run&& run) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        std::string text;
        try {
            run();
        } catch (const std::exception& error) {
            text = error.what();
        }
        const bool whole = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
        _exit(whole ? 0 : 1);
    }
    close(ends[1]);
    std::string text(1 << 16, '\0');
    const ssize_t n = read(ends[0], text.data(), text.size());
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return text;
}

TEST(Cache, IsThisUsersAlone) {
    const mode_t before = umask(0);
    const Directory cache("own");
    answer(cache.path());
    umask(before);
    EXPECT_EQ(mode_of(cache.path()), 0700U);
    for (const auto& entry : fs::recursive_directory_iterator(cache.path()))
        EXPECT_EQ(mode_of(entry.path()), entry.is_directory() ? 0700U : 0600U) << entry.path();
}

TEST(Cache, RefusesWhatOthersMayWrite) {
    const Directory cache("open");
    const std::string so = answer(cache.path())->path();
    chmod(so.c_str(), 0666);
    EXPECT_NE(
        message_of<RuntimeError>([&] { answer(cache.path()); }).find("others may write to '" + so + "' (mode 0666)"),
        std::string::npos);
    chmod(so.c_str(), 0600);
    chmod(cache.path().c_str(), 0777);
    EXPECT_NE(message_of<RuntimeError>([&] { answer(cache.path()); }).find("(mode 0777)"), std::string::npos);
    chmod(cache.path().c_str(), 0755);  // others may look
    EXPECT_EQ(call(*answer(cache.path())), 42);
}

TEST(Cache, RefusesWhatOthersOwn) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    constexpr uid_t kOther = 12345;
    const auto give = [&](const fs::path& file, uid_t user) { ASSERT_EQ(lchown(file.c_str(), user, user), 0) << file; };
    const auto expect_refused = [](const std::string& cache, const fs::path& file) {
        const std::string message = message_of<RuntimeError>([&] { answer(cache); });
        EXPECT_NE(message.find("'" + file.string() + "' belongs to user 12345, not to user 0"), std::string::npos)
            << message;
        EXPECT_NE(message.find("FORGE_CACHE_DIR"), std::string::npos);
    };
    const Directory cache("foreign");
    const std::string so = answer(cache.path())->path();
    for (const fs::path& file : {fs::path(so), fs::path(cache.path())}) {
        give(file, kOther);
        expect_refused(cache.path(), file);
        give(file, 0);
    }
    fs::remove(so);  // headers count when something is compiled
    const fs::path header = files_in(cache.path(), ".h").front();
    give(header, kOther);
    expect_refused(cache.path(), header);
    const Directory link("link");
    fs::create_directory_symlink(cache.path(), link.path());
    give(link.path(), kOther);
    expect_refused(link.path(), link.path());
}

TEST(Cache, MakesAgainWhatWasCutShort) {
    const Directory cache("short");
    const std::string so = answer(cache.path())->path();
    const auto size = fs::file_size(so);
    cut_short(so);
    const auto again = answer(cache.path());
    EXPECT_FALSE(again->from_cache());
    EXPECT_EQ(call(*again), 42);
    EXPECT_EQ(fs::file_size(so), size);
    fs::remove(so);
    for (const char* kind : {".h", ".cpp"})
        for (const fs::path& file : files_in(cache.path(), kind)) cut_short(file);
    EXPECT_EQ(call(*answer(cache.path())), 42);
    std::ofstream(so, std::ios::app) << "more";
    EXPECT_FALSE(answer(cache.path())->from_cache());
    EXPECT_TRUE(answer(cache.path())->from_cache());
}

TEST(Cache, OfAFullDiskIsAnErrorAndStaysGood) {
    const Directory cache("full");
    build::Cache made(cache.path());
    // Files of at most so many bytes: within a header, within a library; then a file system that has no more.
    for (const rlim_t most : {1000U, 6000U}) {
        const std::string message = message_in_child([&] {
            const rlimit limit{most, most};
            setrlimit(RLIMIT_FSIZE, &limit);
            signal(SIGXFSZ, SIG_IGN);
            answer(cache.path());
        });
        EXPECT_NE(message.find("File too large"), std::string::npos) << message;
    }
    if (mount("tmpfs", cache.path().c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0) {
        const std::string message = message_of<RuntimeError>([&] { answer(cache.path()); });
        EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
        EXPECT_NE(message.find("make room (`forge cache prune`), or set FORGE_CACHE_DIR"), std::string::npos)
            << message;
        EXPECT_EQ(files_in(cache.path(), ".tmp").size(), 0U);
        EXPECT_EQ(mount("tmpfs", cache.path().c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
        EXPECT_EQ(call(*answer(cache.path())), 42);
        EXPECT_EQ(umount(cache.path().c_str()), 0);
    }
    for (const auto& entry : fs::recursive_directory_iterator(cache.path()))
        EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    EXPECT_EQ(call(*answer(cache.path())), 42);
}

/// As a user who may read a cache but not write it; for root that is somebody else, who owns it.
void become_reader_of(const fs::path& cache) {
    constexpr uid_t kOther = 12345;
    for (const auto& entry : fs::recursive_directory_iterator(cache))
        if (entry.is_directory()) chmod(entry.path().c_str(), 0500);
    chmod(cache.c_str(), 0500);
    if (geteuid() != 0) return;
    for (const auto& entry : fs::recursive_directory_iterator(cache))
        EXPECT_EQ(lchown(entry.path().c_str(), kOther, kOther), 0);
    EXPECT_EQ(lchown(cache.c_str(), kOther, kOther), 0);
    EXPECT_EQ(seteuid(kOther), 0);
}

TEST(Cache, ThatCannotBeWrittenServesWhatItHolds) {
    const Directory cache("read_only");
    answer(cache.path());
    const std::string message = message_in_child([&] {
        become_reader_of(cache.path());
        const auto library = answer(cache.path());
        if (!library->from_cache() || call(*library) != 42) throw RuntimeError("not served");
        build::build_cpu_library("another", kSource + "// another\n", "plain", cache.path());
    });
    EXPECT_NE(message.find("cache: cannot write '" + cache.path() + "/another-"), std::string::npos) << message;
    EXPECT_NE(message.find("Permission denied; a cache that cannot be written serves only what it holds; make it "
                           "writable, or set FORGE_CACHE_DIR to a directory of your own"),
              std::string::npos)
        << message;
    const Directory cold("cold");
    fs::create_directories(cold.path());
    const std::string first = message_in_child([&] {
        become_reader_of(cold.path());
        answer(cold.path());
    });
    EXPECT_NE(first.find("Permission denied; "), std::string::npos) << first;
    const std::string nowhere = message_in_child([&] {
        become_reader_of(cold.path());
        answer(cold.path() + "/below/it");
    });
    EXPECT_NE(nowhere.find("cannot be made (Permission denied); set FORGE_CACHE_DIR"), std::string::npos) << nowhere;
}

TEST(Cache, HasNamesOfAnyLength) {
    const Directory cache("long");
    const std::string name(5000, 'n');
    EXPECT_EQ(call(*build::build_cpu_library(name, kSource, "plain", cache.path())), 42);
}

TEST(Cache, NeedsNoCompilerOnceItIsWarmAndMayBeMoved) {
    const Directory cache("warm"), elsewhere("moved");
    EXPECT_FALSE(answer(cache.path())->from_cache());
    fs::rename(cache.path(), elsewhere.path());
    const EnvironmentVariable nothing("PATH", "/nowhere");
    const auto library = answer(elsewhere.path());
    EXPECT_TRUE(library->from_cache());
    EXPECT_EQ(call(*library), 42);
}

TEST(Cache, TakesACompilerOfSeveralWords) {
    const Directory cache("words");
    const EnvironmentVariable words("FORGE_CXX", "env LANG=C g++");
    EXPECT_EQ(call(*answer(cache.path())), 42);
}

/// Processes and threads that all find the cache empty: each gets the library, and none leaves anything behind.
TEST(Cache, ServesManyThatCompileAtOnce) {
    constexpr int kProcesses = 5, kThreads = 8;
    const Directory cache("many");
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        std::atomic<int> right{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([&] {
                try {
                    right += call(*answer(cache.path())) == 42;
                } catch (const std::exception& error) {
                    std::fprintf(stderr, "%s\n", error.what());
                }
            });
        for (std::thread& thread : threads) thread.join();
        _exit(right == kThreads ? 0 : 1);
    }
    for (const pid_t child : children) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(files_in(cache.path(), ".so").size(), 1U);
    EXPECT_EQ(files_in(cache.path(), ".tmp").size(), 0U);
}

}  // namespace
}  // namespace forge::tests
