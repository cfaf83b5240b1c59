#include "bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu.h"
#include "json.h"
#include "program/entry_point.h"

namespace forge::tools {
namespace {

const std::vector<std::string> kDefaultVariants = {"linear_attention", "scalar_gla", "gla", "delta_net",
                                                   "gated_delta_net"};

BenchRow measure(const ir::Definition& definition, check::Problem problem, const BuildOptions& options) {
    const Attention attention = build(definition, problem, options);
    const bool in_place = options.entry == "decode";
    problem.initial_state = in_place;
    const check::Buffers buffers(check::tensors_of(options.entry, definition), problem);
    Call call = buffers.call();
    if (in_place) call.final_states = call.initial_states;
    const std::size_t bytes = attention.workspace_bytes(call);
    constexpr std::size_t kAlignment = 64;
    std::vector<std::byte> storage(bytes + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    call.workspace = storage.data() + (kAlignment - address % kAlignment) % kAlignment;

    BenchRow row{definition.name,           attention.strategy(),  attention.isa(), attention.chunk(), 0, 0, 0, 0, 0,
                 attention.build_seconds(), attention.from_cache()};
    const Timing timing = time_runs([&] { attention(call); });
    row.seconds = timing.seconds, row.others = timing.others;
    const auto tokens = static_cast<double>(problem.tokens()), heads = static_cast<double>(buffers.heads());
    row.tokens_per_second = tokens / row.seconds;
    row.gflops = attention.flops_per_token() * tokens * heads / row.seconds * 1e-9;
    row.gbps = static_cast<double>(buffers.bytes() + (in_place ? 2 * buffers.state_bytes() : 0)) / row.seconds * 1e-9;
    return row;
}

void print_ceilings(const Ceilings& ceilings) {
    if (!ceilings.sgemm) {
        fmt::print("no sgemm ceiling: libopenblas.so.0 is not installed (Debian: libopenblas0-pthread)\n");
    } else {
        fmt::print("sgemm ceiling: {:.0f} GFLOP/s (OpenBLAS, 2048³, same threads, {} kernels", ceilings.sgemm->gflops,
                   ceilings.sgemm->kernels);
        if (ceilings.installed && ceilings.installed->kernels != ceilings.sgemm->kernels)
            fmt::print("; {:.0f} with the {} ones it chooses by itself", ceilings.installed->gflops,
                       ceilings.installed->kernels);
        fmt::print(")\n");
    }
    fmt::print("copy ceiling: {:.1f} GB/s (memcpy, read + written)\n\n", ceilings.copy_gbps);
}

void print(const BenchResult& result) {
    fmt::print("B={} T={} H={} K={} V={} {}, {} threads\n", result.B, result.T, result.H, result.K, result.V,
               result.dtype, result.threads);
    print_ceilings(result.ceilings);
    Table table({"variant", "strategy", ">chunk", "isa", ">median", ">tokens/s", ">GFLOP/s", ">of sgemm", ">GB/s",
                 ">of copy", ">built in"});
    for (const BenchRow& row : result.rows) {
        const auto& sgemm = result.ceilings.sgemm;
        table.row({row.variant, row.strategy, std::to_string(row.chunk), row.isa, seconds_text(row.seconds),
                   fmt::format("{:.3g}", row.tokens_per_second), fmt::format("{:.1f}", row.gflops),
                   sgemm ? fmt::format("{:.0f} %", 100 * row.gflops / sgemm->gflops) : "-",
                   fmt::format("{:.2f}", row.gbps), fmt::format("{:.0f} %", 100 * row.gbps / result.ceilings.copy_gbps),
                   seconds_text(row.build_seconds) + (row.from_cache ? " (cache)" : "")});
    }
    fmt::print("{}", table.text());
    double others = 0;
    for (const BenchRow& row : result.rows) others = std::max(others, row.others);
    const std::string warning = Contention::warning(others);
    if (!warning.empty()) fmt::print("\n{}", warning);
    for (const BenchRow& row : result.rows)
        if (result.ceilings.sgemm && row.gflops > result.ceilings.sgemm->gflops)
            fmt::print("{} is above the sgemm ceiling: the machine's speed changed in between; measure again\n",
                       row.variant);
}

}  // namespace

int bench_variants(const BenchOptions& options) {
    std::vector<std::string> names = options.variants.empty() ? kDefaultVariants : options.variants;
    if (options.all) {
        names.clear();
        for (const variants::Entry& entry : variants::all()) names.push_back(entry.name);
    }
    if (options.ranks > 0) return bench_ranks(options, names);
    if (on_gpu(options.build)) return bench_on_gpu(options, names);
    const check::Problem problem = problem_of(options.shape, options.build);
    BenchResult result{options.shape.dtype,
                       problem.B,
                       problem.T,
                       problem.H,
                       options.shape.K,
                       options.shape.V,
                       thread_count(options.build.threads),
                       {},
                       {}};
    {
        Progress progress(names.size() + 2);
        progress.step("ceilings: sgemm and memcpy");
        const Ceilings before = measure_ceilings(result.threads);
        for (const std::string& name : names) {
            progress.step(name);
            result.rows.push_back(measure(find_variant(name), problem, options.build));
        }
        progress.step("ceilings again");
        result.ceilings = highest(before, measure_ceilings(result.threads));
    }
    if (options.json) fmt::print("{}\n", json_of(result));
    else print(result);
    return 0;
}

}  // namespace forge::tools
