/// On which multiprocessors state-free work runs at the same time as the scan that needs it
/// (device/cuda/warpgroup/beside.h). A pure function of numbers.
#pragma once

#include <cstdint>

namespace forge::runtime {

struct WorkBeside {
    std::int64_t tasks = 0;
    int groups = 1;         ///< that take tasks, per block; a block has a multiprocessor to itself
    double task_steps = 0;  ///< what a task costs a multiprocessor with as many tasks as groups, in steps of the scan
                            ///< from chunk to chunk
};

struct BesideBlocks {
    std::int64_t blocks = 0;  ///< of threads
    std::int64_t common = 0;  ///< how many tasks, the first ones, all blocks share
    std::int64_t staying =
        0;  ///< how many blocks share the other tasks; the rest leave their multiprocessors to the scan
};

/// The scan has `scan_tasks`, `scan_parts` of which ask for the same chunk.
BesideBlocks place_beside(const WorkBeside& work, std::int64_t scan_tasks, std::int64_t scan_parts,
                          std::int64_t multiprocessors);

/// When the scan ends, in its steps, if it begins after so many rounds of all groups: it waits longest for the first
/// round of those that stay, or for the last.
double end_of_scan(const WorkBeside& work, std::int64_t rounds, std::int64_t asked_per_step, std::int64_t staying,
                   std::int64_t multiprocessors);

}  // namespace forge::runtime
