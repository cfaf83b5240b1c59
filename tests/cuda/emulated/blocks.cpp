#include "tests/cuda/emulated/blocks.h"

#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/cuda/emulated/fiber.h"

namespace forge::emulated {
namespace {

constexpr int kMostIdleTurns = 10000;

struct Thread {
    enum class State : std::uint8_t { Ready, AtBarrier } state = State::Ready;
    int number = 0;
    struct Block* block = nullptr;
    Fiber fiber;
    [[nodiscard]] bool ready() const { return !fiber.ended() && state == State::Ready; }
};

struct Block {
    std::vector<Thread> threads;
    std::unique_ptr<char[]> memory;
    bool paused = false;  ///< a thread looked for a word of another block since the block was last run
};

Thread* running = nullptr;

void leave(Thread::State state) {
    running->state = state;
    running->fiber.leave();
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
    for (const Thread& thread : block.threads) waiting = waiting || thread.ready();
    for (Thread& thread : block.threads)
        if (!waiting && thread.state == Thread::State::AtBarrier) thread.state = Thread::State::Ready, released = true;
    return progress || released;
}

bool done(const Block& block) {
    for (const Thread& thread : block.threads)
        if (!thread.fiber.ended()) return false;
    return true;
}

}  // namespace

void run(Machine& machine, const Grid& grid, const std::function<void()>& kernel) {
    machine.thread = [] { return running->number; };
    machine.memory = [] { return static_cast<void*>(running->block->memory.get()); };
    machine.sync = [] { leave(Thread::State::AtBarrier); };
    machine.pause = [] { running->block->paused = true, leave(Thread::State::Ready); };
    std::vector<Block> blocks(static_cast<std::size_t>(grid.blocks));
    for (Block& block : blocks) {
        block.memory = std::make_unique<char[]>(grid.shared_bytes + 64);
        block.threads = std::vector<Thread>(static_cast<std::size_t>(grid.threads));
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
