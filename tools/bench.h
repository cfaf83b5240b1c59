/// What `forge bench` measures, and this machine's ceilings that it is compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace forge::tools {

struct Ceilings {
    std::optional<double> sgemm_gflops;  ///< OpenBLAS, one large product; none if the library is not installed
    double copy_gbps = 0;                ///< memcpy of large blocks, bytes read plus bytes written
};
Ceilings measure_ceilings(int threads);

struct BenchRow {
    std::string variant, strategy, isa;
    std::int64_t chunk = 0;
    double seconds = 0, tokens_per_second = 0, gflops = 0, gbps = 0;
    double build_seconds = 0;
    bool from_cache = false;
};

struct BenchResult {
    std::string dtype;
    std::int64_t B = 0, T = 0, H = 0, K = 0, V = 0;
    int threads = 0;
    Ceilings ceilings;
    std::vector<BenchRow> rows;
};

}  // namespace forge::tools
