#include "plan/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "forge/error.h"

namespace forge::plan {

const char* to_string(Strategy strategy) {
    switch (strategy) {
        case Strategy::OnePass:
            return "one-pass";
        case Strategy::Fused:
            return "fused";
        case Strategy::Decoupled:
            return "decoupled";
        case Strategy::Segmented:
            return "segmented";
    }
    return "?";
}

std::vector<Strategy> all_strategies() {
    return {Strategy::OnePass, Strategy::Fused, Strategy::Decoupled, Strategy::Segmented};
}

Strategy strategy_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Strategy s : all_strategies()) {
        if (name == to_string(s)) return s;
        names.emplace_back(to_string(s));
    }
    throw RuntimeError(fmt::format("strategy: expected one of {}, got '{}'", fmt::join(names, ", "), name));
}

const char* to_string(Loop loop) {
    switch (loop) {
        case Loop::Scan:
            return "chunks in order, one task per sequence, head and tile";
        case Loop::Chunks:
            return "one task per chunk and head";
        case Loop::Summaries:
            return "summaries of segments, one task per segment and head";
        case Loop::Carries:
            return "segments in order, one task per sequence and head";
        case Loop::Segments:
            return "chunks in order, one task per segment and head";
        case Loop::Relay:
            return "chunks in order, one task per segment and head after the other";
    }
    return "?";
}

bool in_order(Loop loop) { return loop != Loop::Chunks; }

bool is_scan(Loop loop) { return loop == Loop::Scan || loop == Loop::Segments || loop == Loop::Relay; }

}  // namespace forge::plan
