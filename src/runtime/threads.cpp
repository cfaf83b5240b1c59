#include "runtime/threads.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace forge::runtime {
namespace {

using Body = std::function<void(std::int64_t, int)>;

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

    void run(std::int64_t tasks, int threads, const Body& fn) {
        const std::lock_guard one_loop(loop_);
        {
            const std::lock_guard lock(mutex_);
            while (static_cast<int>(workers_.size()) < threads - 1) workers_.emplace_back([this, id = static_cast<int>(workers_.size()) + 1] { work(id); });
            fn_ = &fn;
            tasks_ = tasks;
            next_.store(0);
            helpers_ = threads - 1;
            busy_ = threads - 1;
            ++generation_;
        }
        wake_.notify_all();
        drain(fn, tasks, 0);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

 private:
    void drain(const Body& fn, std::int64_t tasks, int worker) {
        for (std::int64_t t = next_.fetch_add(1); t < tasks; t = next_.fetch_add(1)) fn(t, worker);
    }

    void work(int id) {
        std::uint64_t seen = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stop_ || (generation_ != seen && id <= helpers_); });
            if (stop_) return;
            seen = generation_;
            const Body& fn = *fn_;
            const std::int64_t tasks = tasks_;
            lock.unlock();
            drain(fn, tasks, id);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    std::mutex loop_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    const Body* fn_ = nullptr;
    std::int64_t tasks_ = 0;
    std::atomic<std::int64_t> next_{0};
    int helpers_ = 0, busy_ = 0;
    std::uint64_t generation_ = 0;
    bool stop_ = false;
};

Pool& pool() {
    static Pool instance;
    return instance;
}

}  // namespace

void parallel_for(std::int64_t tasks, int threads, const Body& fn) {
    if (threads > tasks) threads = static_cast<int>(tasks);
    if (threads > 1) return pool().run(tasks, threads, fn);
    for (std::int64_t t = 0; t < tasks; ++t) fn(t, 0);
}

}  // namespace forge::runtime
