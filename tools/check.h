/// What `forge check` finds: the worst of every tensor per variant, element type and strategy, and each failure by
/// itself.
#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace forge::tools {

struct CheckRow {
    std::string variant, dtype, strategy;
    std::string reason;  ///< why nothing could be run; empty if it could
    std::int64_t chunk = 0;
    int cases = 0, not_admitted = 0;
    double tolerance = 0;
    std::vector<check::Difference> worst;  ///< one per output and state
    std::vector<std::string> worst_case;   ///< the case it came from
    bool against_step = true, ok = true;
};

struct CheckFailure {
    std::string variant, dtype, strategy, problem;
    check::Difference difference;
    std::string message;  ///< a failed call; then `difference` says nothing
};

struct CheckResult {
    std::vector<CheckRow> rows;
    std::vector<CheckFailure> failures;
};

}  // namespace forge::tools
