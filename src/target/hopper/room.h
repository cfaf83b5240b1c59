/// What the kernels of a plan for warp groups need of shared memory, and schedules with which they have it.
#pragma once

#include <string>

#include "support/reasons.h"
#include "target/hopper/cut_outputs.h"

namespace forge::target {

/// Shared memory of a block that has nothing in it but tiles.
std::int64_t all_bytes(const SharedMemory& memory);

/// What a plan's kernels need of shared memory, in bytes.
struct Needs {
    std::int64_t in_order = 0;  ///< those that go through chunks in order
    std::int64_t most = 0;      ///< the others
    std::int64_t chunks = 0;    ///< … of single chunks
    std::string in_order_name, most_name;

    [[noreturn]] void refuse_for(Reason reason, std::int64_t bytes) const;
};
Needs needs_of(const plan::Plan& plan);

/// Chunks whose inputs are held at a time.
constexpr int kMostStages = 4;

/// Kernels of single chunks that would not fit have their long axes split, and so have those that take parts of an axis
/// of their own: parts of rows are no images of matrices, but of blocks they are.
plan::Schedule with_split_axes(plan::Schedule s, const SharedMemory& memory, const MakePlan& make_plan);

/// One warp group per task, and the most stages with which tasks that go through chunks in order still fit: one per
/// multiprocessor, or two.
plan::Schedule with_stages(plan::Schedule s, const SharedMemory& memory, bool two_tasks, const MakePlan& make_plan);

/// The same, beside which, where a task has its multiprocessor to itself, another warp group asks for inputs, if
/// kernels can have one.
plan::Schedule with_one_group(const plan::Schedule& s, const SharedMemory& memory, bool two_tasks,
                              const MakePlan& make_plan);

/// The same; where inputs of two chunks do not fit, wide ones arrive as their chunk begins, all but one of them or all.
plan::Schedule with_one_group_or_late(plan::Schedule s, const SharedMemory& memory, bool two_tasks,
                                      const MakePlan& make_plan);

}  // namespace forge::target
