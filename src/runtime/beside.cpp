#include "runtime/beside.h"

#include <algorithm>

namespace forge::runtime {

double end_of_scan(const WorkBeside& work, std::int64_t rounds, std::int64_t asked_per_step, std::int64_t staying,
                   std::int64_t multiprocessors) {
    const auto steps_of = [&](std::int64_t tasks) {
        return static_cast<double>(tasks) / static_cast<double>(asked_per_step);
    };
    const double task = work.task_steps * work.groups, begin = static_cast<double>(rounds) * task;
    const std::int64_t common = std::min(work.tasks, rounds * multiprocessors * work.groups),
                       at_a_time = staying * work.groups;
    const std::int64_t later = (work.tasks - common + at_a_time - 1) / at_a_time;
    double end = begin + steps_of(work.tasks);
    for (const std::int64_t round : {std::int64_t{1}, later})
        if (later > 0)
            end = std::max(end, begin + static_cast<double>(round) * task +
                                    steps_of(work.tasks - common - (round - 1) * at_a_time));
    return end;
}

BesideBlocks place_beside(const WorkBeside& work, std::int64_t scan_tasks, std::int64_t scan_parts,
                          std::int64_t multiprocessors) {
    if (work.tasks == 0 || scan_tasks == 0) return {work.tasks, work.tasks, 0};
    const std::int64_t staying = scan_tasks < multiprocessors ? multiprocessors - scan_tasks : multiprocessors;
    const std::int64_t a_round = multiprocessors * work.groups, most = (work.tasks + a_round - 1) / a_round;
    const auto end = [&](std::int64_t rounds) {
        return end_of_scan(work, rounds, scan_tasks / scan_parts, staying, multiprocessors);
    };
    std::int64_t best = 0;
    for (std::int64_t rounds = 1; rounds <= most; ++rounds)
        if (end(rounds) < end(best)) best = rounds;
    BesideBlocks placed;
    placed.common = std::min(work.tasks, best * a_round);
    placed.staying = placed.common < work.tasks ? std::min(work.tasks, staying) : 0;
    placed.blocks = best > 0 ? std::min(work.tasks, multiprocessors) : placed.staying;
    return placed;
}

}  // namespace forge::runtime
