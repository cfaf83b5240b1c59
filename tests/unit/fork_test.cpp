/// A forked child has loops of its own, whatever its parent's threads were doing, and ends as it should.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runtime/threads.h"

namespace {
bool in_child = false;
}  // namespace

#ifdef __SANITIZE_ADDRESS__
/// A child has one of its parent's threads. The search for leaks, as it exits, would stop them all, and may wait for
/// ever.
extern "C" int __lsan_is_turned_off() { return in_child ? 1 : 0; }  // NOLINT: the sanitizer's name
#endif

namespace forge::runtime {
namespace {

constexpr int kThreads = 3;
constexpr std::int64_t kTasks = 1000;

std::int64_t count() {
    std::atomic<std::int64_t> done{0};
    parallel_for(kTasks, kThreads, [&](std::int64_t, int) { done.fetch_add(1); });
    return done.load();
}

/// Whether a child that runs loops and ends by `exit`, static objects' destructors included, ends well.
bool child_ends_well() {
    const pid_t child = fork();
    if (child == 0) {
        in_child = true;
        alarm(20);  // a child that hangs is ended, and seen
        std::exit(count() == kTasks && count() == kTasks ? 0 : 1);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0;
}

TEST(Fork, AfterLoops) {
    EXPECT_EQ(count(), kTasks);
    EXPECT_TRUE(child_ends_well());
    EXPECT_EQ(count(), kTasks);
}

TEST(Fork, WhileOtherThreadsRunLoops) {
    std::atomic<bool> stop{false}, begun{false};
    std::thread other([&] {
        while (!stop) count(), begun = true;
    });
#ifdef __SANITIZE_ADDRESS__
    // GCC 12's sanitizer forks with its allocator's locks as they are: a child waits for ever for one that a thread of
    // the parent held as it began.
    while (!begun) std::this_thread::yield();
#endif
    for (int round = 0; round < 20; ++round) EXPECT_TRUE(child_ends_well());
    stop = true;
    other.join();
}

}  // namespace
}  // namespace forge::runtime
