#include "target/question.h"

#include <fmt/format.h>

#include "forge/error.h"

namespace forge::target {

const char* to_string(Rule rule) {
    switch (rule) {
        case Rule::Cost:
            return "cost";
        case Rule::Paper:
            return "paper";
    }
    return "?";
}

Rule rule_named(const std::string& name) {
    for (const Rule rule : {Rule::Cost, Rule::Paper})
        if (name == to_string(rule)) return rule;
    throw RuntimeError(fmt::format("rule: expected cost or paper, got '{}'", name));
}

std::string to_string(const Wishes& wishes) {
    std::vector<std::string> fixed;
    if (wishes.strategy) fixed.emplace_back(plan::to_string(*wishes.strategy));
    if (wishes.chunk) fixed.push_back(fmt::format("chunk {}", wishes.chunk));
    if (wishes.tiles) fixed.push_back(fmt::format("{} tiles", wishes.tiles));
    if (wishes.segments) fixed.push_back(fmt::format("{} segments", wishes.segments));
    if (wishes.threads) fixed.push_back(fmt::format("{} threads", wishes.threads));
    return fmt::format("{}", fmt::join(fixed, ", "));
}

Wishes wishes_of(const plan::Schedule& schedule, bool gpu) {
    Wishes wishes;
    if (gpu) wishes.engine = schedule.engine, wishes.threads = schedule.block_threads;
    if (schedule.engine == plan::Engine::Channels) return wishes;  // nothing else is chosen there
    wishes.strategy = schedule.strategy;
    wishes.chunk = schedule.chunk;
    wishes.tiles = schedule.tiles;
    wishes.segments = schedule.strategy == plan::Strategy::Segmented ? schedule.segments : 0;
    return wishes;
}

bool same_choice(const plan::Schedule& a, const plan::Schedule& b) {
    return a.strategy == b.strategy && a.chunk == b.chunk && a.tiles == b.tiles && a.segments == b.segments &&
           (a.tiles == 1 || a.tile_axis == b.tile_axis) && a.engine == b.engine && a.block_threads == b.block_threads;
}

}  // namespace forge::target
