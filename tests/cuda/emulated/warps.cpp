#include "tests/cuda/emulated/warps.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/cuda/emulated/copies.h"
#include "tests/cuda/emulated/fiber.h"
#include "tests/cuda/emulated/products.h"

namespace forge::emulated {
namespace {

constexpr int kMultiprocessorRegisters = 65536, kMostRegisters = 255;

/// What a thread waits for.
struct Wait {
    enum class For : std::uint8_t { Nothing, Warp, Barrier, Phase, Registers, KernelBefore, Turn } what = For::Nothing;
    unsigned a = 0, b = 0;
};

struct Thread {
    Fiber fiber;
    Wait wait;
    int registers = 0;
};

/// What the lanes of a warp have brought that are already at the instruction that all of them execute.
struct Meeting {
    int lanes = 0;
    Hardware::Act act = nullptr;
    std::array<void*, kLanes> brought{};
};

/// A barrier of the block by number (bar.sync).
struct Numbered {
    unsigned threads = 0, arrived = 0, generation = 0;
};

SharedMemory poisoned(SharedMemory memory) {
    memory.poison(0, memory.bytes, 1);
    return memory;
}

/// One block while it runs.
class Block final : public Hardware {
  public:
    Block(const WarpGrid& grid, int number, std::vector<Thread>& threads, std::mt19937& random,
          const std::function<void()>& wait_for_kernel_before);
    void run(const std::function<void()>& kernel);

    [[nodiscard]] int block() const override { return number_; }
    [[nodiscard]] int blocks() const override { return grid_.blocks; }
    [[nodiscard]] int thread() const override { return running_; }
    [[noreturn]] void fail(const char* what) const override { throw std::runtime_error(what); }
    void together(void* mine, Act act) override;
    void sync(unsigned number, unsigned threads) override;
    void set_registers(int count) override;
    void fence_async() override { view_.fence(warp()); }
    void wait_for_kernel_before() override { leave({Wait::For::KernelBefore}); }

    void barrier_begin(unsigned barrier, unsigned arrivals) override { barriers_.begin(barrier, arrivals); }
    void barriers_begun() override { barriers_.begun(); }
    void barrier_arrive(unsigned barrier) override { barriers_.arrive(barrier), may_be_overtaken(); }
    void barrier_expect(unsigned barrier, unsigned bytes) override { barriers_.expect(barrier, bytes); }
    void barrier_wait(unsigned barrier, unsigned parity) override;

    void copy(unsigned shared, const void* global, int bytes, int valid) override {
        copies_.start(running_, shared, global, bytes, valid);
    }
    void copy_commit() override { copies_.commit(running_); }
    void copy_wait(int pending) override { copies_.wait(running_, pending); }
    void bulk_load(unsigned shared, const void* global, unsigned bytes, unsigned barrier) override {
        copies_.start_bulk(shared, global, bytes, barrier);
    }
    void bulk_store(void* global, unsigned shared, unsigned bytes) override {
        copies_.start_bulk_store(running_, global, shared, bytes);
    }
    void tensor_load(unsigned shared, const Box& box, unsigned barrier) override {
        copies_.start_load(shared, box, barrier);
    }
    void tensor_store(const Box& box, unsigned shared) override { copies_.start_store(running_, box, shared); }
    void bulk_commit() override { copies_.commit_stores(running_), may_be_overtaken(); }
    void bulk_wait(int pending) override { copies_.wait_for_stores(running_, pending); }

    void issue(const Product& product) override { products().issue(product, random_); }
    void commit_products() override { products().commit(); }
    void wait_for_products(int pending) override { products().wait(pending); }

  private:
    [[nodiscard]] std::size_t warp() const { return static_cast<std::size_t>(running_ / kLanes); }
    [[nodiscard]] Products& products() { return products_[warp()]; }
    void leave(Wait wait);
    void may_be_overtaken();
    [[nodiscard]] bool may_run(const Thread& thread);
    [[nodiscard]] bool may_run_warp(std::size_t warp);
    void run_warp(std::size_t warp);
    [[nodiscard]] bool run_a_warp();
    [[nodiscard]] bool end_kernel_before();
    void expect_order() const;
    [[nodiscard]] std::string waits();

    const WarpGrid& grid_;
    int number_, running_ = 0, free_registers_ = 0;
    unsigned turn_ = 0;
    bool overtaken_ = false;  ///< the running warp, other lanes of which may not have come as far
    std::vector<Thread>& threads_;
    std::mt19937& random_;
    const std::function<void()>& wait_for_kernel_before_;
    bool kernel_before_ended_ = false;
    AsyncView view_;
    Barriers barriers_;
    Copies copies_;
    std::vector<Products> products_;  ///< of each warp
    std::vector<Meeting> meetings_;   ///< of each warp
    std::map<unsigned, Numbered> numbered_;
};

Block::Block(const WarpGrid& grid, int number, std::vector<Thread>& threads, std::mt19937& random,
             const std::function<void()>& wait_for_kernel_before)
    : grid_(grid),
      number_(number),
      threads_(threads),
      random_(random),
      wait_for_kernel_before_(wait_for_kernel_before),
      view_(poisoned(grid.memory), grid.threads / kLanes),
      barriers_(grid.memory),
      copies_(grid.memory, grid.global, view_, barriers_, grid.threads),
      meetings_(threads.size() / kLanes) {
    for (int w = 0; w < grid.threads / kLanes; ++w) products_.emplace_back(view_.seen(), w % (kWarpGroup / kLanes));
}

void Block::leave(Wait wait) {
    Thread& self = threads_[static_cast<std::size_t>(running_)];
    self.wait = wait;
    self.fiber.leave();
}

/// Others may see what this thread has done before it goes on, or not.
void Block::may_be_overtaken() {
    if (random_() % 4 > 0) return;
    overtaken_ = true;
    leave({Wait::For::Turn, turn_});
}

void Block::together(void* mine, Act act) {
    Meeting& meeting = meetings_[warp()];
    if (meeting.lanes > 0 && meeting.act != act)
        throw std::runtime_error("lanes of a warp are at different instructions");
    meeting.act = act;
    meeting.brought[static_cast<std::size_t>(running_ % kLanes)] = mine;
    if (++meeting.lanes < kLanes) return leave({Wait::For::Warp});
    act(meeting.brought.data());
    meeting.lanes = 0;
    for (std::size_t l = 0; l < kLanes; ++l) threads_[warp() * kLanes + l].wait = {};
}

void Block::sync(unsigned number, unsigned threads) {
    if (threads == 0) threads = static_cast<unsigned>(grid_.threads);
    Numbered& barrier = numbered_[number];
    if (barrier.arrived > 0 && barrier.threads != threads)
        throw std::runtime_error(fmt::format("barrier {} for {} threads and for {}", number, barrier.threads, threads));
    barrier.threads = threads;
    if (++barrier.arrived == threads) barrier.arrived = 0, ++barrier.generation;
    else leave({Wait::For::Barrier, number, barrier.generation});
}

void Block::set_registers(int count) {
    Thread& self = threads_[static_cast<std::size_t>(running_)];
    if (count > self.registers) leave({Wait::For::Registers, static_cast<unsigned>(count - self.registers)});
    free_registers_ += self.registers - count;
    self.registers = count;
}

void Block::barrier_wait(unsigned barrier, unsigned parity) {
    if (!barriers_.passed(barrier, parity)) leave({Wait::For::Phase, barrier, parity});
}

bool Block::may_run(const Thread& thread) {
    if (thread.fiber.ended()) return false;
    const Wait& wait = thread.wait;
    switch (wait.what) {
        case Wait::For::Nothing:
            return true;
        case Wait::For::Warp:
            return false;
        case Wait::For::Barrier:
            return numbered_[wait.a].generation != wait.b;
        case Wait::For::Phase:
            return barriers_.passed(wait.a, wait.b);
        case Wait::For::Registers:
            return free_registers_ >= static_cast<int>(wait.a);
        case Wait::For::KernelBefore:
            return kernel_before_ended_;
        case Wait::For::Turn:
            return wait.a != turn_;
    }
    return false;
}

bool Block::may_run_warp(std::size_t warp) {
    const auto first = threads_.begin() + static_cast<std::ptrdiff_t>(warp * kLanes);
    return std::any_of(first, first + kLanes, [&](const Thread& t) { return may_run(t); });
}

/// Until all its lanes wait, or others go first.
void Block::run_warp(std::size_t warp) {
    const bool upwards = random_() % 2 == 0;
    overtaken_ = false;
    for (bool any = true; any;) {
        any = false;
        for (std::size_t l = 0; l < kLanes && !overtaken_; ++l) {
            const std::size_t number = warp * kLanes + (upwards ? l : kLanes - 1 - l);
            Thread& thread = threads_[number];
            if (!may_run(thread)) continue;
            thread.wait = {};
            running_ = static_cast<int>(number);
            thread.fiber.resume();
            any = true;
        }
    }
    view_.note_writes(warp);
}

bool Block::run_a_warp() {
    ++turn_;
    std::vector<std::size_t> able;
    for (std::size_t w = 0; w < meetings_.size(); ++w)
        if (may_run_warp(w)) able.push_back(w);
    if (able.empty()) return false;
    run_warp(able[random_() % able.size()]);
    return true;
}

/// Whether a thread waits for it.
bool Block::end_kernel_before() {
    const auto waits = [](const Thread& t) { return !t.fiber.ended() && t.wait.what == Wait::For::KernelBefore; };
    if (kernel_before_ended_ || std::none_of(threads_.begin(), threads_.end(), waits)) return false;
    wait_for_kernel_before_();
    return kernel_before_ended_ = true;
}

void Block::run(const std::function<void()>& kernel) {
    const int registers = std::min(kMultiprocessorRegisters / grid_.threads, kMostRegisters) / 8 * 8;
    for (Thread& thread : threads_) thread.fiber.start(kernel), thread.wait = {}, thread.registers = registers;
    const auto ended = [](const Thread& t) { return t.fiber.ended(); };
    while (!std::all_of(threads_.begin(), threads_.end(), ended)) {
        const bool copied = random_() % 4 == 0 && copies_.carry_out_any(random_);
        if (run_a_warp() || copied || copies_.carry_out_any(random_) || end_kernel_before()) continue;
        throw std::runtime_error("no thread can go on:" + waits());
    }
    expect_order();
}

/// All that was started has been waited for, and the warps of a group have done the same.
void Block::expect_order() const {
    copies_.expect_none();
    for (std::size_t w = 0; w < products_.size(); ++w) {
        if (products_[w].under_way()) throw std::runtime_error(fmt::format("warp {} ended before its products", w));
        if (products_[w].issued() != products_[w / 4 * 4].issued())
            throw std::runtime_error(fmt::format("warp {} did not issue the products of its group", w));
    }
}

/// What each warp waits for.
std::string Block::waits() {
    std::string text;
    for (std::size_t w = 0; w < meetings_.size(); ++w) {
        std::set<std::string> reasons;
        for (std::size_t l = 0; l < kLanes; ++l) {
            const Thread& thread = threads_[w * kLanes + l];
            const Wait& wait = thread.wait;
            if (thread.fiber.ended()) reasons.insert("ended");
            else if (wait.what == Wait::For::Warp) reasons.insert("other lanes");
            else if (wait.what == Wait::For::Barrier)
                reasons.insert(fmt::format("barrier {}: {} of {} threads", wait.a, numbered_[wait.a].arrived,
                                           numbered_[wait.a].threads));
            else if (wait.what == Wait::For::Phase)
                reasons.insert(fmt::format("parity {} at {}: {}", wait.b, wait.a, barriers_.missing(wait.a)));
            else if (wait.what == Wait::For::Registers)
                reasons.insert(fmt::format("{} registers of {} free ones", wait.a, free_registers_));
        }
        text += fmt::format("\n  warp {}: {}", w, fmt::join(reasons, "; "));
    }
    return text;
}

}  // namespace

void run_warps(Hardware*& hardware, const WarpGrid& grid, const std::function<void()>& kernel) {
    std::vector<Thread> threads(static_cast<std::size_t>(grid.threads));
    std::mt19937 random(grid.seed);
    bool kernel_before_ended = false;
    for (int b = 0; b < grid.blocks; ++b) {
        const std::function<void()> wait_for_kernel_before = [&] {
            if (!grid.kernel_before || std::exchange(kernel_before_ended, true)) return;
            // It has the multiprocessor for itself meanwhile.
            Hardware* const here = hardware;
            const std::vector<std::byte> memory(grid.memory.data, grid.memory.data + grid.memory.bytes);
            grid.kernel_before();
            std::copy(memory.begin(), memory.end(), grid.memory.data);
            hardware = here;
        };
        // Nobody says in which order a GPU starts blocks.
        Block block(grid, grid.seed % 2 == 1 ? b : grid.blocks - 1 - b, threads, random, wait_for_kernel_before);
        hardware = &block;
        block.run(kernel);
    }
    if (grid.kernel_before && !kernel_before_ended) throw std::runtime_error("no thread waited for the kernel before");
}

}  // namespace forge::emulated
