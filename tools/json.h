/// The `--json` reports, in one place because nlohmann-json is slow to compile. Numbers that JSON cannot hold (NaN,
/// infinity) become null.
#pragma once

#include <string>
#include <vector>

#include "bench.h"
#include "check.h"
#include "forge/runtime.h"
#include "gpu.h"
#include "variants/variants.h"

namespace forge::tools {

/// Entries of the cache, for `forge cache`.
struct CacheRow {
    std::string name, kind, about, damage;
    std::int64_t bytes = 0, age_seconds = 0;
};
struct CacheReport {
    std::string directory;
    std::vector<CacheRow> rows;
};

std::string json_of(const CacheReport& report);
std::string json_of(const std::vector<variants::Entry>& entries);
std::string json_of(const CheckResult& result);
std::string json_of(const Attention& attention);
std::string json_of(const BenchResult& result);
std::string json_of(const GpuBenchResult& result);

}  // namespace forge::tools
