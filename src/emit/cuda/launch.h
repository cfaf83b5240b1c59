/// How a kernel is started on a GPU, as plain data: what the emitter promises the runtime. One function answers for
/// every engine; nothing is launched here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace forge::emit {

struct Launch {
    int threads = 256;              ///< per block
    std::int64_t shared_bytes = 0;  ///< dynamic
    /// Tasks per unit of work and head. A unit is a sequence, chunk or segment, as the kernel's loop says; or the
    /// `unit_rows` tokens of a segment that is the engine's own, where that is not 0.
    std::int64_t parts = 1;
    std::int64_t unit_rows = 0;
    /// 0: one block of threads per task. Otherwise at most so many blocks per multiprocessor, which take tasks in
    /// order, unless they are clusters.
    int resident_blocks = 0;
    int most_blocks = 0;  ///< of the launch, if not 0, which take tasks in order
    bool beside = false;  ///< the next kernel runs beside it; blocks take tasks one after the other
    /// A task may be shared by up to so many blocks, a cluster, each of which has `cluster_rows` of its tokens at a
    /// time.
    int cluster_blocks = 1;
    std::int64_t cluster_rows = 0;
    /// It may start before the plan's kernel ahead of it has ended, and waits for that itself before it reads results.
    bool waits = false;
    /// Tensors of the call that the kernel moves by tensor copies, in the order of their maps.
    std::vector<int> maps = {};
    /// Workspace in which the tasks of one launch leave each other results: set to 0xFF, in the stream, before each
    /// launch.
    std::int64_t exchange_bytes = 0;         ///< per task
    std::int64_t exchange_header_bytes = 0;  ///< and once
};

/// What the text of a source defines, so that its kernels take no more of a call's tensors than the plan has.
std::string define_of_call(const plan::Plan& plan);

/// The 16-bit token matrices of a kernel whose warp groups have roles, as far as there are maps.
std::vector<int> mapped_tensors(const plan::Plan& plan, const plan::Kernel& kernel);

/// Whether the plan's kernels overlap so; `kernel` is one of them.
bool waits_for_kernel_before(const plan::Plan& plan, const plan::Kernel& kernel);

/// How many tasks of a kernel for single chunks share a multiprocessor: as many as its memory holds, but each with 100
/// registers per thread.
std::int64_t tasks_at_once(const plan::Kernel& kernel);

Launch launch_of(const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::emit
