/// What `forge demo` has found, and the report that is made of it.
#pragma once

#include <string>
#include <vector>

#include "demo_task.h"

namespace forge::tools {

struct DemoRow {
    DemoVariant variant;
    Score score;
    double seconds = 0, tokens_per_second = 0, deviation = 0;
    double others = 0;  ///< share of all cores that other processes used while it was timed
    std::string strategy, isa;
    std::int64_t chunk = 0;
};

struct DemoResult {
    std::string path, text, dtype;
    std::size_t file_bytes = 0;  ///< of which `text` may be the first
    std::uint64_t seed = 0;
    int threads = 0;
    std::int64_t checked_tokens = 0;  ///< over which the deviation was taken
    std::vector<DemoRow> rows;
};

/// Hits of the guesses in a window that ends at each of `points` equally spaced positions.
std::vector<double> accuracy_along(const DemoResult& result, const DemoRow& row, std::size_t points);
inline constexpr std::int64_t kAccuracyWindow = 2000;

double most_contention(const DemoResult& result);

/// One page of HTML with everything in it: no script, no link, no outside resource.
std::string html_report(const DemoResult& result);

}  // namespace forge::tools
