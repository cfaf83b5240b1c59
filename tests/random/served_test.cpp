/// Random programs called as servers call them: states in pools, states before chunks, states of 16 bits. And whether
/// what looks for faults in such calls finds those that are planted.
#include <gtest/gtest.h>

#include "tests/random/chunk_states.h"
#include "tests/random/examine.h"

namespace forge::fuzz {
namespace {

const Decisions::Forced kServed = {
    {"cpu0.0.pooled", 1},        {"cpu0.1.pooled", 1}, {"cpu0.kept", 1},       {"tiles.0.pooled", 1},
    {"warp groups.0.pooled", 1}, {"warp.kept", 1},     {"portable90.kept", 1}, {"p0.strided", 0},
};
const Decisions::Forced kDecoded = {
    {"cpu0.decode", 1},
    {"cpu0.half_states", 1},
    {"cpu0.0.pooled", 1},
    {"portable90.decode", 1},
    {"portable90.half_states", 1},
    {"tiles.0.pooled", 1},
    {"p0.strided", 0},
    {"dtype", 1},
};

Tally examined(const Decisions::Forced& forced, std::uint64_t first, std::uint64_t programs) {
    const std::vector<Engine> engines = {cpu_engine(1),
                                         emulated_engine([](std::uint64_t seed) { return seed % 3 == 0; })};
    Tally tally;
    for (std::uint64_t seed = first; seed < first + programs; ++seed) {
        const auto fault = examine(seed, forced, engines, tally);
        EXPECT_FALSE(fault) << report(*fault);
    }
    return tally;
}

TEST(ServedCalls, HaveStatesInPoolsAndBeforeChunks) {
    constexpr int kPrograms = 9;
    Tally tally = examined(kServed, 3000, kPrograms);
    EXPECT_GE(tally["cpu: states in pools"], kPrograms / 2);
    EXPECT_GE(tally["cpu: states before chunks"], kPrograms / 2);
    EXPECT_GE(tally["emulated: states in pools"], 2);
    EXPECT_GE(tally["emulated: states before chunks"], 2);
}

TEST(ServedCalls, DecodeWithStatesOf16Bits) {
    Tally tally = examined(kDecoded, 3100, 9);
    EXPECT_GE(tally["cpu: states of 16 bits"], 2);
    EXPECT_GE(tally["emulated: states of 16 bits"], 1);
}

/// A solved problem of a program with states, on the CPU.
class PlantedFaults : public testing::Test {
  protected:
    static constexpr std::uint64_t kSeed = 3001;
    Decisions decisions_{
        kSeed, {{"p0.packed", 1}, {"p0.strided", 0}, {"x.pooled", 1}, {"x.pooled.numbered", 0}, {"x.pooled.skips", 1}}};
    Subject subject_{decisions_};
    Problem& problem_ = subject_.problem(0);
    const Attention attention_ = compile(subject_.program.def, {.dtype = subject_.program.dtype,
                                                                .sizes = subject_.program.sizes,
                                                                .chunk = 64,
                                                                .chunk_states = true,
                                                                .tuned = false});

    void solve() {
        attention_(problem_.buffers.call());
        ASSERT_TRUE(problem_.faults().empty());
        ASSERT_FALSE(subject_.program.def.states.empty());
    }
    std::vector<std::string> pooled_with(const std::function<void(PooledCall&)>& plant) {
        solve();
        auto pooled = PooledCall::of(decisions_, "x", problem_.buffers);
        EXPECT_TRUE(pooled.has_value());
        attention_(pooled->call());
        plant(*pooled);
        std::vector<std::string> found = pooled->take(true);
        for (std::string& fault : problem_.faults()) found.push_back(std::move(fault));
        return found;
    }
};

TEST_F(PlantedFaults, NoneIsFoundWhereThereIsNone) {
    EXPECT_TRUE(pooled_with([](PooledCall&) {}).empty());
    ChunkStatesCall kept(decisions_, "x.kept", problem_, 64);
    attention_(kept.call());
    EXPECT_TRUE(kept.faults().empty());
}

TEST_F(PlantedFaults, AWrittenSlotIsFound) {
    // Each byte of each pool belongs to a state that is wanted, or to nobody.
    EXPECT_FALSE(pooled_with([](PooledCall& pooled) {
                     for (std::byte& x : pooled.blocks.front().bytes) x ^= std::byte{1};
                 }).empty());
}

TEST_F(PlantedFaults, SkippedOutputsThatAreNotZerosAreFound) {
    EXPECT_FALSE(pooled_with([&](PooledCall&) {
                     for (auto& [name, x] : problem_.buffers.outputs)
                         for (std::byte& byte : x.storage)
                             if (byte == std::byte{}) byte = std::byte{1};
                 }).empty());
}

TEST_F(PlantedFaults, AStateOfAnotherChunkIsFound) {
    solve();
    ChunkStatesCall kept(decisions_, "x.kept", problem_, 64);
    attention_(kept.call());
    std::vector<std::byte>& bytes = kept.blocks.front().bytes;
    std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
    EXPECT_FALSE(kept.faults().empty());
}

}  // namespace
}  // namespace forge::fuzz
