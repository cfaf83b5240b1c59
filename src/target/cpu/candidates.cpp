#include "target/cpu/candidates.h"

#include <algorithm>

#include "graph/saved_states.h"
#include "graph/transition.h"

namespace forge::target {
namespace {

using plan::Schedule;
using plan::Strategy;

constexpr std::int64_t kSmallestTile = 16;     ///< below this a tile's products no longer fill the vector registers
constexpr std::int64_t kMostTasksPerSlot = 4;  ///< splitting further only repeats work
constexpr std::int64_t kFewestChunks = 2;      ///< per segment

/// Chunk sizes up to the smallest one that holds the whole sequence: rows past its end are computed too.
std::vector<std::int64_t> chunks(const Problem& problem, const Wishes& wishes) {
    if (wishes.chunk) return {wishes.chunk};
    std::vector<std::int64_t> sizes;
    for (const std::int64_t c : {16, 32, 64, 128})
        if (sizes.empty() || c / 2 < problem.tokens) sizes.push_back(c);
    return sizes;
}

std::int64_t lanes(const Problem& problem) { return std::max<std::int64_t>(1, problem.sequences * problem.heads); }

/// Halvings of the axis: whole ones first, until every slot has several tasks. Parts are whole vectors: rows of spills
/// are shared between parts, and kernels store whole vectors.
std::vector<std::int64_t> splits(std::int64_t size, const Problem& problem, const Device& device,
                                 const Wishes& wishes) {
    std::vector<std::int64_t> counts;
    const bool any = wishes.tiles == 0;
    const auto whole_vectors = [&](std::int64_t part) {
        return part >= kSmallestTile && part % device.vector_width == 0;
    };
    for (std::int64_t n = 1; size % n == 0 && (n == 1 || whole_vectors(size / n)); n *= 2) {
        if (n > 1 && any && lanes(problem) * n > kMostTasksPerSlot * device.slots) break;
        if (any || n == wishes.tiles) counts.push_back(n);
    }
    return counts;
}

/// Numbers of segments that fill the slots once, twice, four times.
std::vector<std::int64_t> segments(std::int64_t chunk, const Problem& problem, const Device& device,
                                   const Wishes& wishes) {
    if (wishes.segments) return {wishes.segments};
    const std::int64_t most = (problem.tokens + chunk - 1) / chunk / kFewestChunks;
    const std::int64_t fill = std::max<std::int64_t>(2, (device.slots + lanes(problem) - 1) / lanes(problem));
    std::vector<std::int64_t> counts;
    for (const std::int64_t n : {fill, 2 * fill, 4 * fill})
        if (n <= most) counts.push_back(n);
    if (counts.empty()) counts.push_back(std::max<std::int64_t>(2, most));
    return counts;
}

class Enumeration {
  public:
    Enumeration(const ir::Function& program, const Problem& problem, const Device& device, const Wishes& wishes)
        : program_(program), problem_(problem), device_(device), wishes_(wishes) {
        const auto found = graph::transitions(program);
        composable_ =
            !graph::has_saved_states(program) &&
            std::all_of(found.begin(), found.end(), [](const graph::Transition& t) { return t.composable(); });
    }

    std::vector<Schedule> run() {
        for (const Strategy strategy : plan::all_strategies())
            if (!wishes_.strategy || *wishes_.strategy == strategy)
                for (const std::int64_t chunk : chunks(problem_, wishes_)) add(strategy, chunk);
        return std::move(made_);
    }

  private:
    void add(Strategy strategy, std::int64_t chunk) {
        Schedule s;
        s.strategy = strategy;
        s.chunk = chunk;
        s.share = chunk > 1;  // of one token there is too little
        s.vector_width = device_.vector_width;
        if (!device_.gpu) s.stretch_bytes = device_.slots * device_.on_chip_bytes;
        if (strategy == Strategy::Segmented) return add_segments(s);
        if (wishes_.segments > 1) return;
        const std::string axis = axis_to_cut(strategy);
        if (axis.empty()) {
            if (wishes_.tiles <= 1) made_.push_back(s);
            return;
        }
        s.tile_axis = axis;
        const std::int64_t size = problem_.sizes.at(axis);
        for (const std::int64_t n : splits(size, problem_, device_, wishes_)) {
            s.tiles = n;
            s.tile_size = size / n;
            s.tile_chunks = device_.gpu && n > 1 && plan::cuts_chunks(program_, axis);
            made_.push_back(s);
        }
    }

    [[nodiscard]] std::string axis_to_cut(Strategy strategy) const {
        for (const std::string& axis : plan::cut_axes(program_, strategy))
            if (problem_.sizes.contains(axis)) return axis;
        return "";
    }

    /// Asked for by name, segments are tried in any case: the plan's error names the op that stands in the way.
    void add_segments(Schedule s) {
        if (!composable_ && !wishes_.strategy) return;
        if (wishes_.tiles > 1 || (wishes_.segments == 1 && !wishes_.strategy)) return;
        for (const std::int64_t n : segments(s.chunk, problem_, device_, wishes_)) {
            s.segments = n;
            made_.push_back(s);
        }
    }

    const ir::Function& program_;
    const Problem& problem_;
    const Device& device_;
    const Wishes& wishes_;
    bool composable_ = false;
    std::vector<Schedule> made_;
};

}  // namespace

std::vector<Schedule> enumerate_schedules(const ir::Function& program, const Problem& problem, const Device& device,
                                          const Wishes& wishes) {
    return Enumeration(program, problem, device, wishes).run();
}

}  // namespace forge::target
