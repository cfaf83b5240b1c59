#include "runtime/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace forge::runtime {
namespace {

constexpr std::int64_t kTurns = 32;  ///< of each thread, at least, if there are as many tasks: turns even out

class Pool {
  public:
    ~Pool() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (std::thread& t : workers_) t.join();
    }

    void run(std::int64_t tasks, int threads, Body fn) {
        const std::lock_guard one_loop(loop_);
        {
            const std::lock_guard lock(mutex_);
            while (static_cast<int>(workers_.size()) < threads - 1)
                workers_.emplace_back([this, id = static_cast<int>(workers_.size()) + 1] { work(id); });
            fn_ = fn;
            tasks_ = tasks;
            grain_ = std::max<std::int64_t>(1, tasks / (kTurns * threads));
            next_.store(0);
            helpers_ = threads - 1;
            busy_.store(threads - 1);
            generation_.fetch_add(1);
        }
        wake_.notify_all();
        drain(fn, tasks, grain_, 0);
        const auto done = [this] { return busy_.load() == 0; };
        if (soon(done)) return;
        std::unique_lock lock(mutex_);
        done_.wait(lock, done);
    }

  private:
    /// Whether a condition comes true within the time that putting a thread to sleep and waking it would take: the
    /// kernels of a call follow each other closely, and their threads end within microseconds of one another.
    template <class Condition>
    static bool soon(Condition&& condition) {
        constexpr std::chrono::microseconds kPatience{50};
        constexpr int kLooks = 64;  // between looks at the clock
        const auto end = std::chrono::steady_clock::now() + kPatience;
        do {
            for (int i = 0; i < kLooks; ++i) {
                if (condition()) return true;
                relax();
            }
        } while (std::chrono::steady_clock::now() < end);
        return false;
    }

    /// Leaves the core's units to a hardware thread beside this one for a moment.
    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    /// Of many tasks, each thread takes several at a time: neighbours share what the caches hold.
    void drain(Body fn, std::int64_t tasks, std::int64_t grain, int worker) {
        for (std::int64_t begin = next_.fetch_add(grain); begin < tasks; begin = next_.fetch_add(grain))
            for (std::int64_t t = begin; t < std::min(tasks, begin + grain); ++t) fn.run(fn.data, t, worker);
    }

    void work(int id) {
        std::uint64_t seen = 0;
        for (;;) {
            soon([&] { return generation_.load() != seen; });
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return stop_ || (generation_.load() != seen && id <= helpers_); });
            if (stop_) return;
            seen = generation_.load();
            Body fn = fn_;
            const std::int64_t tasks = tasks_, grain = grain_;
            lock.unlock();
            drain(fn, tasks, grain, id);
            lock.lock();
            if (busy_.fetch_sub(1) == 1) done_.notify_one();
        }
    }

    std::mutex loop_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    Body fn_;
    std::int64_t tasks_ = 0, grain_ = 1;
    std::atomic<std::int64_t> next_{0};
    int helpers_ = 0;
    std::atomic<int> busy_{0};
    std::atomic<std::uint64_t> generation_{0};
    bool stop_ = false;
};

/// The process's pool, made by its first loop. A forked child has none of its parent's threads: it leaves the parent's
/// pool as it is, with locks that no thread will release, and starts a new one.
class ThePool {
  public:
    ThePool() {
        pthread_atfork(nullptr, nullptr, [] { current_.store(nullptr); });
    }
    ~ThePool() { delete current_.load(); }
    ThePool(const ThePool&) = delete;
    ThePool& operator=(const ThePool&) = delete;

    static Pool& get() {
        if (Pool* pool = current_.load()) return *pool;
        auto made = std::make_unique<Pool>();
        Pool* other = nullptr;
        return current_.compare_exchange_strong(other, made.get()) ? *made.release() : *other;
    }

  private:
    static inline std::atomic<Pool*> current_{nullptr};
};
const ThePool kThePool;

}  // namespace

void run_in_parallel(std::int64_t tasks, int threads, Body fn) {
    if (threads > tasks) threads = static_cast<int>(tasks);
    if (threads > 1) return ThePool::get().run(tasks, threads, fn);
    for (std::int64_t t = 0; t < tasks; ++t) fn.run(fn.data, t, 0);
}

}  // namespace forge::runtime
