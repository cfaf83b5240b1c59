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

std::string json_of(const std::vector<variants::Entry>& entries);
std::string json_of(const CheckResult& result);
std::string json_of(const Attention& attention);
std::string json_of(const BenchResult& result);
std::string json_of(const GpuBenchResult& result);

}  // namespace forge::tools
