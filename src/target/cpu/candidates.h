/// The schedules that are worth a price: strategy × chunk × split of the parallel axis × segments, as far as the
/// program allows them and the problem can use them. No prices in here.
#pragma once

#include "target/question.h"

namespace forge::target {

std::vector<plan::Schedule> enumerate_schedules(const ir::Function& program, const Problem& problem,
                                                const Device& device, const Wishes& wishes);

}  // namespace forge::target
