/// What `forge bench` measures, and this machine's ceilings that it is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forge::tools {

/// One large product with OpenBLAS, and the kernels it used: they are compiled per processor family, and a processor
/// that is newer than the library gets those of an older one.
struct Sgemm {
    double gflops = 0;
    std::string kernels;  ///< OpenBLAS's name: "Haswell", "SkylakeX"
};

struct Ceilings {
    std::optional<Sgemm> sgemm;      ///< the fastest; none if the library is not installed
    std::optional<Sgemm> installed;  ///< with the kernels that the library chooses by itself
    double copy_gbps = 0;            ///< memcpy of large blocks, bytes read plus bytes written
};
Ceilings measure_ceilings(int threads);
/// The higher of each: a machine that others use too is slower at times, and a ceiling is what it can do.
Ceilings highest(const Ceilings& a, const Ceilings& b);

struct BenchRow {
    std::string variant, strategy, isa;
    std::int64_t chunk = 0;
    double seconds = 0, tokens_per_second = 0, gflops = 0, gbps = 0;
    double others = 0;  ///< share of all cores that other processes used meanwhile
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
