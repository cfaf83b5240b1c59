#include "tests/cuda/emulated/blocks.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/cuda/emulated/fiber.h"
#include "tests/cuda/emulated/hardware.h"

namespace forge::emulated {
namespace {

constexpr int kMostIdleTurns = 10000;

/// The barrier of a cluster: how many threads have arrived since it was passed last, and how often it was.
struct Cluster {
    unsigned number = 0;
    std::size_t arrived = 0, passed = 0;
    std::vector<struct Block*> blocks;
};

struct Thread {
    enum class State : std::uint8_t { Ready, AtBarrier, AtWarp } state = State::Ready;
    int number = 0;
    std::size_t arrived_after = 0;  ///< how often the cluster's barrier had been passed when this thread last arrived
    struct Block* block = nullptr;
    Fiber fiber;
    [[nodiscard]] bool ready() const { return !fiber.ended() && state == State::Ready; }
};

/// What the lanes of a warp have brought that are already at the instruction that all of them execute.
struct Meeting {
    int lanes = 0;
    std::array<void*, kLanes> brought{};
};

struct Block {
    std::vector<Thread> threads;
    std::vector<Meeting> warps;
    std::unique_ptr<char[]> memory;
    bool paused = false;  ///< a thread looked for something of another block since the block was last run
    Cluster* cluster = nullptr;
    unsigned in_cluster = 0;
};

Thread* running = nullptr;

void leave(Thread::State state) {
    running->state = state;
    running->fiber.leave();
}

void together(void* mine, void (*act)(void* const* brought)) {
    Block& block = *running->block;
    const int warp = running->number / kLanes;
    Meeting& meeting = block.warps[static_cast<std::size_t>(warp)];
    meeting.brought[static_cast<std::size_t>(running->number % kLanes)] = mine;
    if (++meeting.lanes < kLanes) return leave(Thread::State::AtWarp);
    act(meeting.brought.data());
    meeting.lanes = 0;
    for (Thread& thread : block.threads)
        if (thread.number / kLanes == warp) thread.state = Thread::State::Ready;
}

void pause() { running->block->paused = true, leave(Thread::State::Ready); }

bool done(const Block& block) {
    return std::all_of(block.threads.begin(), block.threads.end(),
                       [](const Thread& thread) { return thread.fiber.ended(); });
}

void* memory_of(unsigned block, const void* mine) {
    const auto& blocks = running->block->cluster->blocks;
    if (block >= blocks.size() || done(*blocks[block]))
        throw std::runtime_error("emulated kernel: a block writes to one that is not, or no more, there");
    return blocks[block]->memory.get() + (static_cast<const char*>(mine) - running->block->memory.get());
}

void cluster_arrive() {
    Cluster& cluster = *running->block->cluster;
    running->arrived_after = cluster.passed;
    if (++cluster.arrived == cluster.blocks.size() * running->block->threads.size())
        cluster.arrived = 0, ++cluster.passed;
}

void cluster_wait() {
    while (running->block->cluster->passed == running->arrived_after) pause();
}

/// Runs each thread of a block that can until it waits; whether any did more than look for a word.
bool advance(Block& block) {
    bool progress = false;
    for (Thread& thread : block.threads) {
        if (!thread.ready()) continue;
        block.paused = false;
        running = &thread;
        thread.fiber.resume();
        progress = progress || !block.paused || !thread.ready();
    }
    bool released = false, waiting = false;
    for (const Thread& thread : block.threads)
        waiting = waiting || thread.ready() || thread.state == Thread::State::AtWarp;
    for (Thread& thread : block.threads)
        if (!waiting && thread.state == Thread::State::AtBarrier) thread.state = Thread::State::Ready, released = true;
    return progress || released;
}

}  // namespace

void run(Machine& machine, const Grid& grid, const std::function<void()>& kernel) {
    machine.thread = [] { return running->number; };
    machine.memory = [] { return static_cast<void*>(running->block->memory.get()); };
    machine.sync = [] { leave(Thread::State::AtBarrier); };
    machine.together = together;
    machine.pause = pause;
    machine.cluster = [] { return running->block->cluster->number; };
    machine.block_in_cluster = [] { return running->block->in_cluster; };
    machine.cluster_blocks = [] { return static_cast<unsigned>(running->block->cluster->blocks.size()); };
    machine.memory_of = memory_of;
    machine.cluster_arrive = cluster_arrive;
    machine.cluster_wait = cluster_wait;
    std::vector<Block> blocks(static_cast<std::size_t>(grid.blocks));
    std::vector<Cluster> clusters(blocks.size() / static_cast<std::size_t>(grid.cluster));
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        Block& block = blocks[b];
        Cluster& cluster = clusters[b / static_cast<std::size_t>(grid.cluster)];
        cluster.number = static_cast<unsigned>(&cluster - clusters.data());
        block.cluster = &cluster, block.in_cluster = static_cast<unsigned>(cluster.blocks.size());
        cluster.blocks.push_back(&block);
        block.memory = std::make_unique<char[]>(grid.shared_bytes + 64);
        block.threads = std::vector<Thread>(static_cast<std::size_t>(grid.threads));
        block.warps.resize(block.threads.size() / kLanes);
        for (std::size_t t = 0; t < block.threads.size(); ++t) {
            block.threads[t].number = static_cast<int>(t), block.threads[t].block = &block;
            block.threads[t].fiber.start(kernel);
        }
    }
    std::mt19937 random(grid.seed);
    std::vector<Block*> left;
    for (Block& block : blocks) left.push_back(&block);
    for (int idle = 0; !left.empty();) {
        const std::size_t i = random() % left.size();
        idle = advance(*left[i]) ? 0 : idle + 1;
        if (idle > kMostIdleTurns) throw std::runtime_error("emulated kernel: every block waits for another");
        if (done(*left[i])) left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

}  // namespace forge::emulated
