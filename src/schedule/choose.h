/// From a program, a problem and a device to a Schedule: a pure function of plain data.
#pragma once

#include <optional>

#include "plan/plan.h"

namespace forge::schedule {

struct Problem {
    tile::Sizes sizes;
    std::int64_t tokens = 4096, sequences = 1, heads = 4;
};

struct Device {
    int threads = 1;
    std::int64_t vector_width = 16;
};

/// What the caller fixed; the rest is chosen.
struct Wishes {
    std::optional<plan::Strategy> strategy;
    std::int64_t chunk = 0;
};

plan::Schedule choose_schedule(const ir::Function& program, const Problem& problem, const Device& device, const Wishes& wishes);

}  // namespace forge::schedule
