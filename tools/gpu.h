/// What the commands do on a GPU.
#pragma once

#include "commands.h"
#include "gpu/load.h"
#include "gpu/session.h"

namespace forge::tools {

/// "cuda" and "cuda:<number>", as against "cpu".
inline bool on_gpu(const BuildOptions& build) { return build.device != "cpu"; }

/// The RMS of every output and final state.
void print_results(const check::Buffers& buffers);

int run_on_gpu(const RunOptions& options);
int bench_on_gpu(const BenchOptions& options, const std::vector<std::string>& variants);
int tune_on_gpu(const TuneOptions& options);

struct GpuBenchRow {
    std::string variant, strategy, schedule;
    std::size_t kernels = 0;
    gpu::Timing timing;
    double floor_seconds = 0;  ///< inputs read once and outputs written once, at the memory's highest rate
    double tflops = 0, gbps = 0;
    double build_seconds = 0;
    bool from_cache = false;
    double others = 0;  ///< share of the cores that other processes had meanwhile: it tells of the host's times
};

/// A sentence below measurements if other processes had the GPU, or took some of a call's time; else empty. `others`:
/// a share of the GPU's time.
std::string gpu_warning(double others);

struct GpuBenchResult {
    std::string device, dtype;
    std::int64_t B = 0, T = 0, H = 0, K = 0, V = 0;
    double memory_gbps = 0, copy_gbps = 0;  ///< read and written: the highest, and what a copy reaches
    double others = 0;                      ///< share of the GPU's time that other processes had
    std::vector<GpuBenchRow> rows;
};

}  // namespace forge::tools
