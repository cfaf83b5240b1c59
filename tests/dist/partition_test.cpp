/// Which tokens, sequences and parts of sequences ranks have: cases of distributed.md, and what must hold of any.
#include <gtest/gtest.h>

#include <random>

#include "forge/dist.h"

namespace forge::dist {
namespace {

using Offsets = std::vector<std::int64_t>;

TEST(Partition, CutsASequenceInTwo) {
    const Offsets cu = {0, 3000, 7000, 10240};  // 5120 tokens each
    const SeqPartition first = SeqPartition::build(cu, 0, 2), second = SeqPartition::build(cu, 1, 2);
    EXPECT_EQ(first.cu_seqlens, (Offsets{0, 3000, 5120}));
    EXPECT_EQ(second.cu_seqlens, (Offsets{0, 1880, 5120}));
    EXPECT_EQ(first.sequences, (Offsets{0, 1}));
    EXPECT_EQ(second.sequences, (Offsets{1, 2}));
    EXPECT_TRUE(!first.has_prev && first.has_next && second.has_prev && !second.has_next);
    EXPECT_EQ(second.first_rank, 0);
    EXPECT_EQ(first.last_rank, 1);
}

TEST(Partition, OfSequencesThatEndAtBorders) {
    const Offsets cu = {0, 512, 1024};
    const SeqPartition first = SeqPartition::build(cu, 0, 2), second = SeqPartition::build(cu, 1, 2);
    EXPECT_TRUE(!first.has_prev && !first.has_next && !second.has_prev && !second.has_next);
    EXPECT_EQ(second.cu_seqlens, (Offsets{0, 512}));
}

TEST(Partition, HasRanksWithATailAndAHead) {
    const Offsets cu = {0, 700, 1024};  // 256 tokens each
    const SeqPartition third = SeqPartition::build(cu, 2, 4);
    EXPECT_EQ(third.cu_seqlens, (Offsets{0, 188, 256}));
    EXPECT_TRUE(third.has_prev && third.has_next);
    EXPECT_EQ(third.first_rank, 0);
    EXPECT_EQ(third.last_rank, 3);
}

TEST(Partition, OfOneSequenceOverAllRanks) {
    for (int r = 0; r < 4; ++r) {
        const SeqPartition p = SeqPartition::build(Offsets{0, 10}, r, 4);
        EXPECT_EQ(p.end - p.begin, r < 2 ? 3 : 2);
        EXPECT_EQ(p.first_rank, 0);
        EXPECT_EQ(p.last_rank, 3);
        EXPECT_EQ(p.has_prev, r > 0);
        EXPECT_EQ(p.has_next, r < 3);
    }
}

TEST(Partition, HasEmptyPartsAndSequences) {
    const Offsets cu = {0, 0, 8, 8, 8}, shards = {0, 4, 4, 8};
    const SeqPartition first = SeqPartition::build(cu, 0, 3, shards), empty = SeqPartition::build(cu, 1, 3, shards),
                       last = SeqPartition::build(cu, 2, 3, shards);
    EXPECT_EQ(first.cu_seqlens, (Offsets{0, 0, 4}));
    EXPECT_EQ(empty.cu_seqlens, (Offsets{0, 0})) << "a sequence goes through it";
    EXPECT_TRUE(empty.has_prev && empty.has_next);
    EXPECT_EQ(last.sequences, (Offsets{1, 2, 3})) << "what is empty at the end is the last rank's";
    const SeqPartition nothing = SeqPartition::build(Offsets{0, 4, 8}, 1, 3, shards);
    EXPECT_EQ(nothing.cu_seqlens, Offsets{0});
    EXPECT_TRUE(!nothing.has_prev && !nothing.has_next);
}

// All parts together are all sequences, and neighbours agree.
TEST(Partition, PartsAreTheWhole) {
    std::mt19937 random(3);
    for (int round = 0; round < 500; ++round) {
        const int size = 1 + static_cast<int>(random() % 9);
        Offsets cu{0}, shards{0};
        for (std::size_t n = random() % 6; n-- > 0;) cu.push_back(cu.back() + static_cast<std::int64_t>(random() % 12));
        for (int r = 1; r < size; ++r) shards.push_back(static_cast<std::int64_t>(random()) % (cu.back() + 1));
        shards.push_back(cu.back());
        std::sort(shards.begin(), shards.end());
        const bool even = random() % 2 == 0;
        Offsets lengths(cu.size() - 1, 0);
        std::vector<SeqPartition> parts;
        for (int r = 0; r < size; ++r) parts.push_back(SeqPartition::build(cu, r, size, even ? Offsets{} : shards));
        std::vector<bool> begun(lengths.size()), ended(lengths.size());
        for (int r = 0; r < size; ++r) {
            const SeqPartition& p = parts[static_cast<std::size_t>(r)];
            ASSERT_EQ(p.cu_seqlens.size(), p.sequences.size() + 1);
            EXPECT_EQ(p.cu_seqlens.back(), p.end - p.begin);
            EXPECT_EQ(p.begin, r == 0 ? 0 : parts[static_cast<std::size_t>(r) - 1].end);
            EXPECT_EQ(p.has_next, r + 1 < size && parts[static_cast<std::size_t>(r) + 1].has_prev);
            for (std::size_t i = 0; i < p.sequences.size(); ++i) {
                const auto n = static_cast<std::size_t>(p.sequences[i]);
                lengths[n] += p.cu_seqlens[i + 1] - p.cu_seqlens[i];
                if (i > 0 || !p.has_prev) {
                    EXPECT_FALSE(begun[n]);
                    begun[n] = true;
                }
                if (i + 1 < p.sequences.size() || !p.has_next) {
                    EXPECT_FALSE(ended[n]);
                    ended[n] = true;
                }
            }
            EXPECT_TRUE(!p.has_prev || p.first_rank < r);
            EXPECT_TRUE(!p.has_next || p.last_rank > r);
        }
        for (std::size_t n = 0; n < lengths.size(); ++n) {
            EXPECT_EQ(lengths[n], cu[n + 1] - cu[n]);
            EXPECT_TRUE(begun[n] && ended[n]);
        }
    }
}

TEST(Partition, RefusesOffsetsThatFall) {
    const auto message = [](const Offsets& cu, const Offsets& shards) -> std::string {
        try {
            SeqPartition::build(cu, 0, 2, shards);
        } catch (const RuntimeError& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(message({0, 5, 3}, {}), "cu_seqlens: expected offsets that do not fall, got 3 after 5");
    EXPECT_EQ(message({1, 5}, {}), "cu_seqlens: expected 0 as the first offset, got 1");
    EXPECT_EQ(message({0, 5}, {0, 5}), "shard_offsets: expected 3, one more than ranks, got 2");
    EXPECT_EQ(message({0, 5}, {0, 2, 4}), "shard_offsets: expected the number of tokens, 5, as the last offset, got 4");
}

}  // namespace
}  // namespace forge::dist
