#include "tests/cuda/emulated/blocks.h"

#include <ucontext.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace forge::emulated {
namespace {

constexpr std::size_t kStackBytes = 1 << 16;
constexpr int kMostIdleTurns = 10000;

struct Fiber {
    enum class State : std::uint8_t { Ready, AtBarrier, Done } state = State::Ready;
    int thread = 0;
    struct Block* block = nullptr;
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
};

struct Block {
    std::vector<Fiber> fibers;
    std::unique_ptr<char[]> memory;
    bool paused = false;  ///< a fiber looked for a word of another block since the block was last run
};

/// The one run under way; fibers find themselves in it.
struct Run {
    std::vector<Block> blocks;
    Fiber* running = nullptr;
    ucontext_t scheduler{};
    const std::function<void()>* kernel = nullptr;
};
Run* current = nullptr;

void leave(Fiber::State state) {
    Fiber& self = *current->running;
    self.state = state;
    swapcontext(&self.context, &current->scheduler);
}

void fiber_main() {
    (*current->kernel)();
    current->running->state = Fiber::State::Done;
}

void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &current->scheduler;
    makecontext(&fiber.context, fiber_main, 0);
}

/// Runs each fiber of a block that can until it waits; whether any did more than look for a word.
bool advance(Block& block) {
    bool progress = false;
    for (Fiber& fiber : block.fibers) {
        if (fiber.state != Fiber::State::Ready) continue;
        block.paused = false;
        current->running = &fiber;
        swapcontext(&current->scheduler, &fiber.context);
        progress = progress || !block.paused || fiber.state != Fiber::State::Ready;
    }
    bool released = false, waiting = false;
    for (const Fiber& fiber : block.fibers) waiting = waiting || fiber.state == Fiber::State::Ready;
    for (Fiber& fiber : block.fibers)
        if (!waiting && fiber.state == Fiber::State::AtBarrier) fiber.state = Fiber::State::Ready, released = true;
    return progress || released;
}

bool done(const Block& block) {
    for (const Fiber& fiber : block.fibers)
        if (fiber.state != Fiber::State::Done) return false;
    return true;
}

}  // namespace

void run(Machine& machine, const Grid& grid, const std::function<void()>& kernel) {
    machine.thread = [] { return current->running->thread; };
    machine.memory = [] { return static_cast<void*>(current->running->block->memory.get()); };
    machine.sync = [] { leave(Fiber::State::AtBarrier); };
    machine.pause = [] { current->running->block->paused = true, leave(Fiber::State::Ready); };
    Run here;
    current = &here;
    here.kernel = &kernel;
    here.blocks.resize(static_cast<std::size_t>(grid.blocks));
    for (Block& block : here.blocks) {
        block.memory = std::make_unique<char[]>(grid.shared_bytes + 64);
        block.fibers.resize(static_cast<std::size_t>(grid.threads));
        for (std::size_t t = 0; t < block.fibers.size(); ++t) {
            block.fibers[t].thread = static_cast<int>(t), block.fibers[t].block = &block;
            start(block.fibers[t]);
        }
    }
    std::mt19937 random(grid.seed);
    std::vector<Block*> left;
    for (Block& block : here.blocks) left.push_back(&block);
    for (int idle = 0; !left.empty();) {
        const std::size_t i = random() % left.size();
        idle = advance(*left[i]) ? 0 : idle + 1;
        if (idle > kMostIdleTurns) throw std::runtime_error("emulated kernel: every block waits for another");
        if (done(*left[i])) left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
    current = nullptr;
}

}  // namespace forge::emulated
