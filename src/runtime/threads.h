/// A pool of threads that waits for loops: `parallel_for(tasks, threads, fn)` calls fn(task, worker) for each task, on
/// the caller's thread and up to threads - 1 others. Tasks are handed out in order, a few neighbours at a time if there
/// are many. Calls from several threads are served one after the other.
#pragma once

#include <cstdint>
#include <functional>

namespace forge::runtime {

void parallel_for(std::int64_t tasks, int threads, const std::function<void(std::int64_t task, int worker)>& fn);

}  // namespace forge::runtime
