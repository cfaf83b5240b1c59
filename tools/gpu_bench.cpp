// `forge bench` and `forge run` on a GPU.
#include <fmt/format.h>

#include <algorithm>

#include "gpu.h"
#include "json.h"
#include "program/entry_point.h"

namespace forge::tools {
namespace {

GpuBenchRow measure(const gpu::Session& session, const ir::Definition& definition, const check::Problem& problem,
                    const BuildOptions& options) {
    const Attention attention = build(definition, problem, options);
    const check::Buffers pattern(check::tensors_of(options.entry, definition), gpu::pattern_of(problem));
    const bool in_place = options.entry == "decode";
    gpu::RepeatedCall arguments(pattern, {.B = problem.B, .T = problem.T, .states_in_place = in_place});
    GpuBenchRow row{
        definition.name,           attention.strategy(),  attention.schedule(), attention.kernels().size(), {}, 0, 0, 0,
        attention.build_seconds(), attention.from_cache()};
    const Contention contention;
    row.timing = session.time(attention, arguments.call(attention, session.stream()));
    row.others = contention.others();
    row.floor_seconds = arguments.bytes() / session.device().memory_bandwidth;
    row.tflops = attention.flops_per_token() * static_cast<double>(problem.tokens() * pattern.heads()) /
                 row.timing.seconds * 1e-12;
    row.gbps = arguments.bytes() / row.timing.seconds * 1e-9;
    return row;
}

std::string device_text(const gpu::Session& session) {
    return fmt::format("{} ({}, {} multiprocessors)", session.device().name, session.device().arch(),
                       session.device().multiprocessors);
}

void print(const GpuBenchResult& result) {
    fmt::print("B={} T={} H={} K={} V={} {} on {}\n", result.B, result.T, result.H, result.K, result.V, result.dtype,
               result.device);
    fmt::print(
        "memory: {:.0f} GB/s at most, {:.0f} in a copy (read + written); floor: inputs read once and outputs written "
        "once (states too, when decoding), at the highest rate\n\n",
        result.memory_gbps, result.copy_gbps);
    Table table({"variant", "strategy", ">kernels", ">GPU time", ">floor", ">time / floor", ">GB/s", ">TFLOP/s",
                 ">end to end", ">host", ">built in"});
    for (const GpuBenchRow& row : result.rows)
        table.row({row.variant, row.strategy, std::to_string(row.kernels), seconds_text(row.timing.seconds),
                   seconds_text(row.floor_seconds), fmt::format("{:.2f}", row.timing.seconds / row.floor_seconds),
                   fmt::format("{:.0f}", row.gbps), fmt::format("{:.1f}", row.tflops),
                   seconds_text(row.timing.end_to_end_seconds), seconds_text(row.timing.host_seconds),
                   seconds_text(row.build_seconds) + (row.from_cache ? " (cache)" : "")});
    fmt::print("{}", table.text());
    for (const GpuBenchRow& row : result.rows) fmt::print("\n{}: {}", row.variant, row.schedule);
    fmt::print("\n");
    double gpu = result.others, host = 0;
    for (const GpuBenchRow& row : result.rows)
        gpu = std::max(gpu, row.timing.lost()), host = std::max(host, row.others);
    fmt::print("{}{}", gpu_warning(gpu), Contention::warning(host));
}

}  // namespace

std::string gpu_warning(double others) {
    if (others < target::Measurement::kQuiet) return "";
    return fmt::format("Other processes had up to {:.0f} % of the GPU's time: these times are not its best.\n",
                       100 * others);
}

int bench_on_gpu(const BenchOptions& options, const std::vector<std::string>& variants) {
    const gpu::Session session(options.build.device);
    const check::Problem problem = problem_of(options.shape, options.build);
    GpuBenchResult result;
    result.device = device_text(session);
    result.dtype = options.shape.dtype;
    result.B = problem.B, result.T = problem.T, result.H = problem.H, result.K = options.shape.K,
    result.V = options.shape.V;
    result.memory_gbps = session.device().memory_bandwidth * 1e-9;
    const gpu::Load load(session.device());
    result.copy_gbps = session.copy_bandwidth() * 1e-9;
    {
        Progress progress(variants.size());
        for (const std::string& name : variants) {
            progress.step(name);
            result.rows.push_back(measure(session, find_variant(name), problem, options.build));
        }
    }
    result.others = load.others();
    if (options.json) fmt::print("{}\n", json_of(result));
    else print(result);
    return 0;
}

int run_on_gpu(const RunOptions& options) {
    const gpu::Session session(options.build.device);
    const ir::Definition definition = find_variant(options.variant);
    const check::Problem problem = problem_of(options.shape, options.build);
    const Attention attention = build(definition, problem, options.build);
    check::Buffers buffers(check::tensors_of(options.build.entry, definition), problem);
    session.run(attention, buffers);
    gpu::DeviceBuffers arguments(buffers);
    const gpu::Timing timing = session.time(attention, arguments.call(attention, session.stream()));
    fmt::print("{}: {} on {}; built in {}{}\n", definition.name, attention.schedule(), device_text(session),
               seconds_text(attention.build_seconds()), attention.from_cache() ? " (from the cache)" : "");
    const auto tokens = static_cast<double>(problem.tokens());
    fmt::print("{} ({} end to end) for {} tokens of {} heads: {:.3g} tokens/s, {:.2f} TFLOP/s\n",
               seconds_text(timing.seconds), seconds_text(timing.end_to_end_seconds), problem.tokens(), buffers.heads(),
               tokens / timing.seconds,
               attention.flops_per_token() * tokens * static_cast<double>(buffers.heads()) / timing.seconds * 1e-12);
    print_results(buffers);
    return 0;
}

}  // namespace forge::tools
