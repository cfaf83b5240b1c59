#include "check/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace forge::check {

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex guard;
    const auto work = [&] {
        for (std::int64_t i = next++; i < count; i = next++) {
            try {
                body(i);
            } catch (...) {
                const std::lock_guard lock(guard);
                if (!failure) failure = std::current_exception();
                next = count;
            }
        }
    };
    const auto threads = std::min<std::int64_t>(count, std::max(1U, std::thread::hardware_concurrency()));
    {
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(work);
        work();
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace forge::check
