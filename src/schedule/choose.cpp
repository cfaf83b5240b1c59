#include "schedule/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/slice.h"

namespace forge::schedule {
namespace {

using plan::Schedule;
using plan::Strategy;

constexpr std::int64_t kChunk = 64;
constexpr std::int64_t kSmallestTile = 16;  ///< below this a tile's products no longer fill the vector registers

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Cuts the axis until there are tasks for all threads, as long as the parts stay whole vectors of useful size.
void choose_tiles(Schedule& s, const ir::Function& program, const Problem& problem, const Device& device) {
    const std::int64_t tasks = std::max<std::int64_t>(1, problem.sequences * problem.heads);
    for (const std::string& axis : graph::parallel_axes(program)) {
        const auto it = problem.sizes.find(axis);
        if (it == problem.sizes.end()) continue;
        std::int64_t tiles = 1;
        while (tasks * tiles < device.threads && it->second % (2 * tiles) == 0 && it->second / (2 * tiles) % kSmallestTile == 0) tiles *= 2;
        s.tile_axis = axis;
        s.tile_size = it->second / tiles;
        s.tiles = tiles;
        return;
    }
}

}  // namespace

Schedule choose_schedule(const ir::Function& program, const Problem& problem, const Device& device, const Wishes& wishes) {
    Schedule s;
    s.vector_width = device.vector_width;
    s.strategy = wishes.strategy.value_or(Strategy::OnePass);
    // A sequence shorter than a chunk is computed as a whole padded chunk: take the smallest that holds it.
    const std::int64_t shortest = 16;
    s.chunk = wishes.chunk ? wishes.chunk : kChunk;
    if (!wishes.chunk && problem.tokens < kChunk) s.chunk = std::max(shortest, divide_up(problem.tokens, shortest) * shortest);
    if (s.strategy == Strategy::Segmented) s.segments = std::max<std::int64_t>(2, device.threads);
    else choose_tiles(s, program, problem, device);
    s.reason = wishes.strategy ? "as asked" : fmt::format("one pass moves every byte once; {} x {} heads on {} threads", problem.sequences, problem.heads, device.threads);
    return s;
}

}  // namespace forge::schedule
