#include "tile/stays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace forge::tile {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

Stay stay(std::int64_t floats, int from, int to) { return {floats, from, to, {}, {}}; }

bool meet(const Stay& a, const Stay& b) {
    return a.from <= b.to && b.from <= a.to && a.offset < b.offset + b.floats && b.offset < a.offset + a.floats;
}

TEST(Stays, ShareMemoryOneAfterTheOther) {
    std::vector<Stay> stays = {stay(4, 0, 1), stay(4, 2, 3), stay(2, 1, 2)};
    EXPECT_EQ(most_at_once(stays), 6);
    EXPECT_EQ(packed(stays, kAny, kAny), 6);
}

TEST(Stays, KeepTheirPlacesWhereNoneAreBetter) {
    std::vector<Stay> stays = {stay(4, 0, 3), stay(4, 2, 5)};
    stays[0].offset = 100, stays[1].offset = 200;
    EXPECT_EQ(packed(stays, 8, 0), 8);
    std::vector<std::int64_t> offsets = {stays[0].offset, stays[1].offset};
    std::sort(offsets.begin(), offsets.end());
    EXPECT_EQ(offsets, (std::vector<std::int64_t>{100, 200}));
}

// What is there at the same time lies apart, within what is taken; trying other orders never takes more.
TEST(Stays, AreApartWhileTheyAreThere) {
    std::mt19937 random(1);
    int better = 0;
    for (int n = 0; n < 200; ++n) {
        std::vector<Stay> stays;
        for (int i = 0; i < 12; ++i) {
            const int from = static_cast<int>(random() % 20), length = static_cast<int>(random() % 8);
            stays.push_back(stay(1 + static_cast<std::int64_t>(random() % 5), from, from + length));
        }
        std::vector<Stay> searched = stays;
        const std::int64_t most = most_at_once(stays);
        const std::int64_t sorted_takes = packed(stays, kAny, kAny), takes = packed(searched, kAny, most);
        better += takes < sorted_takes;
        EXPECT_LE(takes, sorted_takes);
        EXPECT_GE(takes, most);
        std::int64_t end = 0;
        for (const Stay& a : searched) {
            end = std::max(end, a.offset + a.floats);
            for (const Stay& b : searched) EXPECT_FALSE(&a != &b && meet(a, b)) << "seed " << n;
        }
        EXPECT_EQ(end, takes);
    }
    EXPECT_GT(better, 0);
}

}  // namespace
}  // namespace forge::tile
