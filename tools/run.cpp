#include <fmt/format.h>

#include <cmath>

#include "gpu.h"
#include "program/entry_point.h"

namespace forge::tools {
namespace {

double rms(const check::OwnedTensor& x) {
    double squares = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) squares += x.at(i) * x.at(i);
    return x.count() == 0 ? 0 : std::sqrt(squares / static_cast<double>(x.count()));
}

std::string shape_text(const check::OwnedTensor& x) {
    return fmt::format("{}[{}]", to_string(x.dtype), fmt::join(x.shape, ", "));
}

}  // namespace

void print_results(const check::Buffers& buffers) {
    for (const auto& [name, x] : buffers.outputs)
        fmt::print("output {}: {}, RMS {:.6g}\n", name, shape_text(x), rms(x));
    for (const auto& [name, x] : buffers.final_states)
        fmt::print("final state {}: {}, RMS {:.6g}\n", name, shape_text(x), rms(x));
}

int run_variant(const RunOptions& options) {
    if (on_gpu(options.build)) return run_on_gpu(options);
    const ir::Definition definition = find_variant(options.variant);
    const check::Problem problem = problem_of(options.shape, options.build);
    const Attention attention = build(definition, problem, options.build);
    const check::Buffers buffers(check::tensors_of(options.build.entry, definition), problem);
    const Call call = buffers.call();
    const Timing timing = time_runs([&] { attention(call); });
    const double seconds = timing.seconds;

    fmt::print("{}: {}, chunks of {}, {}, {} threads; built in {}{}\n", definition.name, attention.strategy(),
               attention.chunk(), attention.isa(), thread_count(options.build.threads),
               seconds_text(attention.build_seconds()), attention.from_cache() ? " (from the cache)" : "");
    const auto tokens = static_cast<double>(problem.tokens());
    fmt::print("{} for {} tokens of {} heads: {:.3g} tokens/s, {:.1f} GFLOP/s\n", seconds_text(seconds),
               problem.tokens(), buffers.heads(), tokens / seconds,
               attention.flops_per_token() * tokens * static_cast<double>(buffers.heads()) / seconds * 1e-9);
    print_results(buffers);
    fmt::print("{}", Contention::warning(timing.others));
    return 0;
}

}  // namespace forge::tools
