/// The thread pool: every task once, workers of their own, loops from several threads. Runs under the thread sanitizer
/// too.
#include "runtime/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace forge::runtime {
namespace {

TEST(Threads, RunEveryTaskOnce) {
    for (const int threads : {1, 2, 3, 8})
        for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
            std::vector<int> runs(static_cast<std::size_t>(tasks),
                                  0);  // plain ints: no task runs twice, not even at once
            parallel_for(tasks, threads, [&](std::int64_t task, int) { ++runs[static_cast<std::size_t>(task)]; });
            EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), tasks) << threads << " threads";
        }
}

TEST(Threads, GiveEachWorkerItsOwnNumber) {
    constexpr int kThreads = 4;
    std::vector<std::int64_t> sums(kThreads, 0);  // unsynchronised: a number is one thread's at a time
    for (int round = 0; round < 100; ++round)
        parallel_for(64, kThreads, [&](std::int64_t task, int worker) {
            ASSERT_TRUE(worker >= 0 && worker < kThreads);
            sums[static_cast<std::size_t>(worker)] += task;
        });
    std::int64_t total = 0;
    for (const std::int64_t sum : sums) total += sum;
    EXPECT_EQ(total, 100 * 64 * 63 / 2);
}

TEST(Threads, MakeResultsVisibleToTheCaller) {
    std::vector<double> x(512, 0);
    for (int round = 1; round <= 200; ++round) {
        parallel_for(512, 3, [&](std::int64_t task, int) { x[static_cast<std::size_t>(task)] += 1; });
        for (const double value : x) ASSERT_EQ(value, round);
    }
}

TEST(Threads, ServeLoopsOfSeveralCallers) {
    constexpr int kCallers = 4, kRounds = 50;
    std::atomic<std::int64_t> done{0};
    std::vector<std::thread> callers;
    for (int c = 0; c < kCallers; ++c)
        callers.emplace_back([&done, c] {
            for (int round = 0; round < kRounds; ++round)
                parallel_for(10 + c, 1 + c, [&](std::int64_t, int) { done.fetch_add(1); });
        });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(done.load(), kRounds * (10 + 11 + 12 + 13));
}

}  // namespace
}  // namespace forge::runtime
