#include "plan/stages.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"

namespace forge::plan {
namespace {

using Ahead = Stage::Ahead;
using Carries = Stage::Carries;

std::vector<Stage> stages_forwards(Strategy strategy, bool tiled, const PlaceRules& rules) {
    const std::vector<Stage> shared =
        tiled ? std::vector<Stage>{{"shared", Loop::Chunks, Ahead::Shared}} : std::vector<Stage>{};
    const auto with_shared = [&](std::vector<Stage> stages) {
        stages.insert(stages.begin(), shared.begin(), shared.end());
        return stages;
    };
    const std::vector<Stage> epilogue =
        rules.epilogue_axis.empty() ? std::vector<Stage>{} : std::vector<Stage>{{"epilogue", Loop::Chunks}};
    const auto with_epilogue = [&](std::vector<Stage> stages) {
        stages.insert(stages.end(), epilogue.begin(), epilogue.end());
        return stages;
    };
    switch (strategy) {
        case Strategy::OnePass:
            return with_epilogue(with_shared({{"scan", rules.relay ? Loop::Relay : Loop::Scan}}));
        case Strategy::Fused:
            return with_shared({{"states", Loop::Scan}, {"outputs", Loop::Chunks}});
        case Strategy::Decoupled:
            return {{"chunks", Loop::Chunks, Ahead::StateFree}, {"states", Loop::Scan}, {"outputs", Loop::Chunks}};
        case Strategy::Segmented:
            return with_epilogue(with_shared({{"scan", Loop::Segments}}));
    }
    throw InternalError("place: unknown strategy");
}

/// With a kernel ahead of the scan for what only tiles make (PlaceRules::tiles_ahead).
std::vector<Stage> with_tiles_ahead(std::vector<Stage> stages) {
    const auto scan = std::find_if(stages.begin(), stages.end(), [](const Stage& s) { return in_order(s.loop); });
    stages.insert(scan, {"tiles", Loop::Chunks, Ahead::OfTiles});
    return stages;
}

std::string numbered(const std::string& name, std::size_t number) {
    return number == 1 ? name : fmt::format("{}_{}", name, number);
}

/// With so many scans in the place of the one that carries such states.
std::vector<Stage> with_scans_apart(std::vector<Stage> stages, Carries carries, std::size_t count) {
    const auto scan = std::find_if(stages.begin(), stages.end(),
                                   [&](const Stage& s) { return s.loop == Loop::Scan && s.carries == carries; });
    if (scan == stages.end()) return stages;
    std::vector<Stage> scans(count, *scan);
    for (std::size_t i = 0; i < count; ++i) scans[i].name = numbered(scan->name, i + 1);
    const auto place = stages.erase(scan);
    stages.insert(place, scans.begin(), scans.end());
    return stages;
}

/// With a scan of each group of states that need no others, and a kernel for what they add, ahead of all else.
std::vector<Stage> with_early_states(std::vector<Stage> stages, std::size_t groups) {
    for (std::size_t g = groups; g > 0; --g) {
        const std::vector<Stage> early = {{numbered("additions", g), Loop::Chunks},
                                          {numbered("early", g), Loop::Scan, Ahead::Nothing, Carries::Early}};
        stages.insert(stages.begin(), early.begin(), early.end());
    }
    return stages;
}

/// With a kernel ahead of the outputs' own for what these have in common.
std::vector<Stage> with_joint_outputs(std::vector<Stage> stages) {
    const auto outputs = std::find_if(stages.rbegin(), stages.rend(), [](const Stage& s) { return !in_order(s.loop); });
    if (outputs == stages.rend() || outputs->ahead != Ahead::Nothing) return stages;
    stages.insert(outputs.base() - 1, {"joint", Loop::Chunks, Ahead::Nothing, Carries::All, true});
    return stages;
}

/// With a scan forwards, for the states before all chunks, ahead of the one that goes backwards, and at the end, if
/// outputs have a kernel of their own, one for the sums of what these leave. Trailing states have a scan of their own,
/// and a kernel for what they add, behind that one.
std::vector<Stage> stages_backwards(Strategy strategy, bool tiled, const PlaceRules& rules) {
    std::vector<Stage> stages = stages_forwards(strategy, tiled, rules);
    auto scan = std::find_if(stages.begin(), stages.end(), [](const Stage& s) { return s.loop == Loop::Scan; });
    const bool outputs_apart = scan + 1 != stages.end();
    if (!rules.trailing.empty()) {
        const std::vector<Stage> after = {{"trailing_additions", Loop::Chunks},
                                          {"trailing", Loop::Scan, Ahead::Nothing, Carries::Trailing}};
        scan = stages.insert(scan + 1, after.begin(), after.end()) - 1;
    }
    if (rules.between) scan = stages.insert(scan, {"between", Loop::Chunks, Ahead::Between});
    stages.insert(scan, {"before", Loop::Scan, Ahead::Nothing, Carries::Before});
    if (outputs_apart) stages.push_back({"sums", Loop::Scan, Ahead::Nothing, Carries::Sums});
    return stages;
}

}  // namespace

std::vector<Stage> stages_of(Strategy strategy, bool backwards, bool tiled, const PlaceRules& rules,
                             const ScanCounts& counts) {
    std::vector<Stage> stages =
        backwards ? stages_backwards(strategy, tiled, rules) : stages_forwards(strategy, tiled, rules);
    if (!rules.outputs_axis.empty()) stages = with_joint_outputs(std::move(stages));
    if (rules.tiles_ahead) stages = with_tiles_ahead(std::move(stages));
    stages = with_scans_apart(std::move(stages), Carries::Before, counts.before);
    stages = with_scans_apart(std::move(stages), Carries::All, counts.all);
    return with_early_states(std::move(stages), counts.early);
}

}  // namespace forge::plan
