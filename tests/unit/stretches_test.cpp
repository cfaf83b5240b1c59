/// Which chunks a call goes through at a time, and how much of the workspace that takes.
#include "runtime/stretches.h"

#include <gtest/gtest.h>

#include "emit/callable.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "tests/support/entries.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kChunk = 16;

/// The delta rule on two tiles of V, with so much room for what passes between its kernels.
Callable callable_with(std::int64_t stretch_bytes) {
    const ir::Definition def = variants::find("delta_net")->make().define();
    plan::Schedule s;
    s.chunk = kChunk, s.tile_axis = "V", s.tiles = 2, s.tile_size = 32, s.stretch_bytes = stretch_bytes;
    return emit::callable_of(plan::make_plan(def, graph::optimize(frontend::join(def)), {{"K", 64}, {"V", 64}}, s));
}

std::int64_t bytes_per_chunk(const Callable& callable) {
    std::int64_t bytes = 0;
    for (const Spill& spill : callable.spills)
        if (spill.per == Per::Chunk) bytes += spill.floats * static_cast<std::int64_t>(sizeof(float));
    return bytes;
}

Bound packed(std::vector<device::Size> tokens) {
    Bound bound;
    bound.sequences = static_cast<std::int64_t>(tokens.size()), bound.heads = 1, bound.packed = true;
    for (const device::Size n : tokens) bound.length += n, bound.chunks += (n + kChunk - 1) / kChunk;
    bound.tokens.assign(tokens.begin(), tokens.end());
    return bound;
}

std::vector<Stretch> stretches_of(const Callable& callable, const Bound& bound) {
    std::vector<Stretch> found;
    Stretches stretches(callable, bound);
    while (const Stretch* next = stretches.next()) found.push_back(*next);
    return found;
}

TEST(Stretches, TakeTheSameChunksOfEverySequenceAndLeaveOutThoseThatHaveEnded) {
    const auto found = stretches_of(callable_with(1), packed({600, 0, 256, 257}));  // no room: sixteen chunks at a time
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].row, 0);
    EXPECT_EQ(found[0].end, 13 * kChunk);                    // of 38 chunks, as evenly as can be
    EXPECT_EQ(found[0].sequences, (List<int>{0, 1, 2, 3}));  // the empty one too: its final state is its initial one
    EXPECT_EQ(found[0].first_chunk, (List<device::Size>{0, 13, 13, 26}));
    EXPECT_EQ(found[0].chunk_sequence.size(), 39U);
    EXPECT_EQ(found[1].row, found[0].end);
    EXPECT_EQ(found[2].row, found[1].end);
    EXPECT_EQ(found[1].sequences, (List<int>{0, 2, 3}));
    EXPECT_EQ(found[1].chunk_sequence, (List<int>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 3, 3, 3, 3}));
    EXPECT_EQ(found[2].sequences, (List<int>{0}));
    EXPECT_EQ(found[2].chunk_sequence.size(), 12U);
}

TEST(Stretches, AreOneWhereThereIsRoomOrNothingIsPassedOn) {
    const Bound bound = packed({600, 0, 256, 257});
    EXPECT_EQ(stretches_of(callable_with(1 << 30), bound).size(), 1U);
    Callable at_once = callable_with(0);
    EXPECT_FALSE(at_once.in_stretches);
    EXPECT_EQ(stretches_of(at_once, bound).size(), 1U);
    EXPECT_EQ(stretches_of(callable_with(1), packed({})).size(), 1U);
    EXPECT_EQ(stretches_of(callable_with(1), packed({0, 0})).at(0).sequences.size(), 2U);
}

TEST(Stretches, HaveRoomInTheWorkspaceThatDoesNotFallWhenABoundRises) {
    const std::int64_t per_chunk = bytes_per_chunk(callable_with(1));
    const Callable callable = callable_with(100 * per_chunk);
    for (const Spill& spill : callable.spills) {
        for (const std::int64_t tokens : {0, 100, 1600, 1601, 100000}) {
            std::int64_t before = 0;
            for (std::int64_t heads = 1; heads < 40; ++heads) {
                const Bound bound = bind(callable, Bounds{.sequences = 1, .tokens = tokens, .heads = heads});
                const std::int64_t blocks = spill_blocks(callable, spill, bound);
                EXPECT_GE(blocks, before) << "spill " << &spill - callable.spills.data() << ", " << tokens
                                          << " tokens, " << heads << " heads";
                EXPECT_LE(blocks,
                          spill_blocks(callable, spill,
                                       bind(callable, Bounds{.sequences = 1, .tokens = tokens + 1, .heads = heads})))
                    << "spill " << &spill - callable.spills.data();
                before = blocks;
                if (spill.per != Per::Chunk) continue;
                Bound call = packed({tokens});
                call.heads = heads;
                for (const Stretch& s : stretches_of(callable, call))
                    EXPECT_LE(static_cast<std::int64_t>(s.chunk_sequence.size()) * heads, blocks);
            }
        }
        const bool chunks = spill.per == Per::Chunk;
        EXPECT_EQ(spill_blocks(callable, spill, bind(callable, Bounds{.tokens = 1 << 20})), chunks ? 100 : 1)
            << "does not grow with the sequence";
    }
}

}  // namespace
}  // namespace forge::runtime
