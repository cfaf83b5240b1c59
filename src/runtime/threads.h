/// Loops on several threads: `parallel_for(tasks, threads, fn)` calls fn(task, worker) for each task, on the caller's
/// thread and up to threads - 1 others of a pool. Tasks are handed out in order, a few neighbours at a time if there
/// are many. Calls from several threads are served one after the other. No loop allocates memory but the first one with
/// so many threads, which starts them.
#pragma once

#include <cstdint>

namespace forge::runtime {

/// run(data, task, worker) for each task.
struct Body {
    void (*run)(void* data, std::int64_t task, std::int32_t worker) = nullptr;
    void* data = nullptr;
};

/// What a function object does, which must outlive the loop.
template <class Fn>
Body body_of(const Fn& fn) {
    return {[](void* data, std::int64_t task, std::int32_t worker) { (*static_cast<const Fn*>(data))(task, worker); },
            const_cast<Fn*>(&fn)};  // NOLINT: C has one kind of pointer to data
}

/// The caller's threads: run body.run(body.data, task, worker) for every task, each worker number in [0, workers) on
/// one thread at a time, and return when all are done.
struct Threads {
    void (*run)(void* context, std::int64_t tasks, std::int32_t workers,
                void (*body)(void* data, std::int64_t task, std::int32_t worker), void* data) = nullptr;
    void* context = nullptr;
};

void run_in_parallel(std::int64_t tasks, int threads, Body body);

template <class Fn>
void parallel_for(std::int64_t tasks, int threads, const Fn& fn) {
    run_in_parallel(tasks, threads, body_of(fn));
}

}  // namespace forge::runtime
