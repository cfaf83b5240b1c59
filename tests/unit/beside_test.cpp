/// Where work beside a scan runs, against a simulation of every task and step.
#include "runtime/beside.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace forge::runtime {
namespace {

constexpr int kMultiprocessors = 132;

/// When the scan ends, in its steps: group w of a round's groups takes its tasks one after the other, and the scan
/// begins when the rounds that are common are over.
double simulate(const WorkBeside& work, const BesideBlocks& placed, std::int64_t asked_per_step) {
    const double task = work.task_steps * work.groups;
    const std::int64_t all = placed.blocks * work.groups, later = placed.staying * work.groups;
    const double begin = static_cast<double>(all == 0 ? 0 : (placed.common + all - 1) / all) * task;
    double now = begin;
    for (std::int64_t first = 0; first < work.tasks; first += asked_per_step) {
        const std::int64_t last = std::min(work.tasks, first + asked_per_step) - 1;
        if (last >= placed.common)
            now = std::max(now, begin + static_cast<double>((last - placed.common) / later + 1) * task);
        now += 1;
    }
    return now;
}

/// A scan of 32 heads in two parts each, and work whose task costs a multiprocessor 2.5 steps.
WorkBeside gated(std::int64_t chunks) { return {32 * chunks, 4, 2.5}; }

TEST(WorkBeside, StaysWhereTheScanHasNoTask) {
    const BesideBlocks placed = place_beside(gated(512), 64, 2, kMultiprocessors);
    EXPECT_EQ(placed.staying, kMultiprocessors - 64);
    EXPECT_EQ(placed.blocks, kMultiprocessors);
    EXPECT_GT(placed.common, 0);
    EXPECT_LT(placed.common, 32 * 512 / 4);
}

TEST(WorkBeside, IsOverBeforeTheScanIfOneRoundDoesIt) {
    const BesideBlocks placed = place_beside(gated(16), 64, 2, kMultiprocessors);
    EXPECT_EQ(placed.common, 32 * 16);
    EXPECT_EQ(placed.staying, 0);
}

TEST(WorkBeside, HasAllMultiprocessorsWhereTheScanFillsThem) {
    const BesideBlocks placed = place_beside(gated(512), 2 * kMultiprocessors, 2, kMultiprocessors);
    EXPECT_EQ(placed.blocks, kMultiprocessors);
    EXPECT_TRUE(placed.staying == 0 || placed.staying == kMultiprocessors);
}

TEST(WorkBeside, EndsAsEarlyAsAnyNumberOfRounds) {
    for (const std::int64_t chunks : {1, 7, 16, 40, 128, 512, 2000})
        for (const double cost : {0.1, 1.0, 2.5, 7.0})
            for (const std::int64_t scans : {2, 16, 64, 128, 300}) {
                const WorkBeside work{scans / 2 * chunks, 4, cost};
                const double chosen = simulate(work, place_beside(work, scans, 2, kMultiprocessors), scans / 2);
                const std::int64_t staying = scans < kMultiprocessors ? kMultiprocessors - scans : kMultiprocessors;
                for (std::int64_t common = 0; common < work.tasks + 4 * kMultiprocessors;
                     common += 4 * kMultiprocessors) {
                    const std::int64_t shared = std::min(common, work.tasks);
                    const BesideBlocks other{shared > 0 ? std::int64_t{kMultiprocessors} : staying, shared, staying};
                    EXPECT_LE(chosen, simulate(work, other, scans / 2) + 1.5)
                        << chunks << " chunks, " << cost << ", " << scans << " scans, " << shared;
                }
            }
}

TEST(WorkBeside, MayBeNothing) {
    const BesideBlocks placed = place_beside({0, 4, 2.5}, 0, 2, kMultiprocessors);
    EXPECT_EQ(placed.blocks, 0);
}

}  // namespace
}  // namespace forge::runtime
