/// Schedules of several warp groups per task (tile/roles.h): with segments, with work beside the scan, or with blocks
/// of several tiles.
#pragma once

#include <optional>
#include <vector>

#include "target/hopper/cut_outputs.h"

namespace forge::target {

constexpr std::int64_t kTasksPerProcessor = 2;      ///< that hide each other's waits
constexpr std::int64_t kLeastChunks = 16;           ///< of a segment that is worth its summary
constexpr std::int64_t kLeastChunksOfMatrices = 8;  ///< … with a matrix for transition

/// With segments if these pay, and what joins them. Of transitions that are matrices only where warps multiply, whose
/// segments are then priced beside other strategies.
plan::Schedule with_segments(plan::Schedule s, std::int64_t segments, bool pay, const ir::Function& program,
                             const tile::Sizes& held, const SharedMemory& memory, const FitWishes& wishes);

/// The states that a scan of their own had better carry ahead of all else, of a backward pass of those that are made on
/// the way there: what the tokens are turned by, say, so that scans of the others find keys that are turned.
std::set<std::string> early_states_for_others(const ir::Function& program, const tile::Sizes& held);

/// What roles may be tried with, in order of preference. States that are no fragments would lie in memory that warp
/// groups share: they have a scan of their own. Functions that one group at a time can call, and values that would pass
/// between groups, may all be made ahead.
std::vector<plan::Schedule> ways_of_roles(plan::Schedule s, const ir::Function& program, const tile::Sizes& held);

/// Several warp groups per task, where each task has a multiprocessor.
plan::Schedule by_roles(const plan::Schedule& s, const ir::Definition& definition, const ir::Function& program,
                        const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes,
                        const MakePlan& make_plan);

/// Blocks of several tiles, which compute what these have in common once; as many stages, and buffers of what is handed
/// over, as fit.
plan::Schedule with_block_tiles(plan::Schedule s, const SharedMemory& memory, const MakePlan& make_plan);

/// Whether a plan in one pass may have segments that are tasks one after the other: roles, and states that are
/// fragments of which each task has a part of its own.
bool may_relay(const plan::Plan& plan);

/// In one pass whose segments are tasks of their own, one after the other, as many as are wished, or fill the
/// multiprocessors so that it is over sooner; else as it is.
plan::Schedule with_relay(const plan::Schedule& s, const FitWishes& wishes, const SharedMemory& memory,
                          const MakePlan& make_plan);

/// A schedule, and what a call takes by it.
struct TimedSchedule {
    plan::Schedule schedule;
    double microseconds;
};
/// Blocks of two tiles for which all that they have in common is made ahead, beside the scan if that leaves
/// multiprocessors free, with factors folded if the scan is over sooner so.
TimedSchedule with_tiles_apart(const plan::Schedule& s, const FitWishes& wishes, const SharedMemory& memory,
                               const MakePlan& make_plan);
/// The same if by its time it takes less than this share of what another plan takes, a scan and work ahead of it.
std::optional<plan::Schedule> tiles_if_sooner(const plan::Plan& than, double share, const FitWishes& wishes,
                                              const SharedMemory& memory, const MakePlan& make_plan);

}  // namespace forge::target
