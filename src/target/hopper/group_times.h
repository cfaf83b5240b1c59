/// What kernels take whose tasks are one warp group each, without roles: tasks of single chunks, which fill the GPU,
/// and scans. By hopper/fitted.h; of several strategies with such kernels, that one is chosen which takes the least.
#pragma once

#include "target/cpu/cost.h"
#include "target/simt/shared_memory.h"

namespace forge::target {

/// What a task of a chunk takes beside those of the table, of which a multiprocessor is full: fewer that share it hide
/// less of each other's waits.
double factor_of_waits(double tasks_at_once);

/// All tasks of single chunks, so many of which share a multiprocessor.
double microseconds_of_chunks(const plan::Kernel& kernel, std::int64_t tasks, double tasks_at_once,
                              int multiprocessors);

/// Of a scan, or of summaries, which have tasks for their parts.
Extent extent_of_scan(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem);

/// All chunks of a scan, in rounds of as many tasks as multiprocessors have room for.
double microseconds_of_scan(const plan::Plan& plan, const plan::Kernel& kernel, const Extent& extent,
                            int multiprocessors);

/// What the group takes that has most to compute of a chunk, of a task with groups for states and for outputs; 0 of
/// others.
double microseconds_of_roles(const tile::TileKernel& kernel);

/// A chunk of a scan with roles that has its multiprocessor to itself.
double microseconds_of_hop(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem);

/// What a scan adds that runs beside the one before it, where there are multiprocessors for both: they share the
/// memory, which needs `memory` for what both move.
double added_beside(double before, double scan, double memory);

/// All kernels of a plan, one after the other, but for scans that run beside the one before.
double microseconds_of_groups(const plan::Plan& plan, const Problem& problem, const SharedMemory& gpu);

}  // namespace forge::target
