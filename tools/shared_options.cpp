#include "shared_options.h"

#include <fmt/format.h>

#include <charconv>

#include "program/entry_point.h"

namespace forge::tools {

/// CLI11's own range checks print the largest double in full.
CLI::Validator at_least(std::int64_t least) {
    const auto check = [least](const std::string& text) {
        std::int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        return read.ec == std::errc() && read.ptr == end && value >= least
                   ? std::string()
                   : fmt::format("expected a whole number of at least {}, got '{}'", least, text);
    };
    return {check, fmt::format(">= {}", least), "at_least"};
}

void add_shape(CLI::App& app, ShapeOptions& shape, bool with_seed) {
    app.add_option("--B", shape.B, "sequences")->check(at_least(0))->group("Shape");
    app.add_option("--T", shape.T, "tokens per sequence")->check(at_least(0))->group("Shape");
    app.add_option("--H", shape.H, "heads")->check(at_least(1))->group("Shape");
    app.add_option("--HV", shape.HV, "value heads, a multiple of H; 0: as many as H")
        ->check(at_least(0))
        ->group("Shape");
    app.add_option("--K", shape.K, "size of keys and queries")->check(at_least(1))->group("Shape");
    app.add_option("--V", shape.V, "size of values; also of other symbols")->check(at_least(1))->group("Shape");
    app.add_option("--size", shape.sizes, "the size of another symbol, such as D=64")->group("Shape");
    if (with_seed) app.add_option("--seed", shape.seed, "of the random inputs")->group("Shape");
}

void add_dtype(CLI::App& app, std::string& dtype) {
    app.add_option("--dtype", dtype, "element type of inputs and outputs; on a GPU bf16 unless it is given")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}))
        ->group("Shape");
}

void add_build(CLI::App& app, BuildOptions& build, bool with_strategy) {
    if (with_strategy)
        app.add_option("--strategy", build.strategy, "how the work is cut into kernels")
            ->check(CLI::IsMember({"auto", "one-pass", "fused", "decoupled", "segmented"}))
            ->group("Compilation");
    app.add_option(
           "--entry", build.entry,
           "which program: forward, for whole sequences, decode, token by token, backward, gradients, 'backward "
           "of q, k', some, or 'backward to inputs', without those of states")
        ->check([](const std::string& entry) -> std::string {
            const bool known = entry == "forward" || entry == "decode" || program::is_backward(entry);
            return known ? ""
                         : "expected forward, decode, backward, 'backward of' inputs, or either to inputs or from "
                           "states, got '" +
                               entry + "'";
        })
        ->group("Compilation");
    app.add_option("--state-dtype", build.state_dtype, "of states in memory, for --entry decode")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}))
        ->group("Compilation");
    app.add_option("--chunk", build.chunk, "tokens per chunk; 0: chosen")
        ->check(CLI::IsMember({0, 16, 32, 64, 128}))
        ->group("Compilation");
    app.add_option("--tiles", build.tiles, "parts of the value axis; 0: chosen")
        ->check(at_least(0))
        ->group("Compilation");
    app.add_option("--segments", build.segments,
                   "per sequence: at the same time (segmented), or in one pass in order; 0: chosen")
        ->check(at_least(0))
        ->group("Compilation");
    app.add_option("--rule", build.rule, "what chooses between strategies: the cost model, or the paper's Algorithm 1")
        ->check(CLI::IsMember({"cost", "paper"}))
        ->group("Compilation");
    app.add_flag("--untuned", build.untuned, "leave measurements of `forge tune` aside")->group("Compilation");
    app.add_option("--isa", build.isa, "instruction set")
        ->check(CLI::IsMember({"auto", "avx512", "avx2", "plain"}))
        ->group("Compilation");
    app.add_option("--threads", build.threads, "0: all cores; on a GPU 128, 256 or 512 per task, 0: chosen")
        ->check(at_least(0))
        ->group("Compilation");
    app.add_option("--cache", build.cache_dir, "directory of compiled kernels; empty: ~/.cache/forge")
        ->group("Compilation");
}

void add_device(CLI::App& app, BuildOptions& build) {
    app.add_option("--device", build.device, "cpu, or a GPU: cuda or cuda:N")->group("Compilation");
    app.add_option("--engine", build.engine,
                   "kernels on a GPU: warp-groups are for Hopper's matrix units, warps for others'")
        ->check(CLI::IsMember({"auto", "portable", "warps", "warp-groups"}))
        ->group("Compilation");
}

void add_device_or_facts(CLI::App& app, BuildOptions& build) {
    add_device(app, build);
    app.add_option("--on", build.on,
                   "a GPU that need not be there: h200, a100, rtx4090, a name in $FORGE_FACTS, or a file of such facts")
        ->excludes("--device")
        ->group("Compilation");
}

void add_passes(CLI::App& app, PassOptions& passes) {
    app.add_option("--dump", passes.dump, "what passes made: after:PASS, or all; docs/levels.md lists the passes")
        ->group("Passes");
    app.add_option("--stop-after", passes.stop_after, "what this pass made, whether or not what follows works")
        ->group("Passes");
    app.add_flag("--times", passes.times, "how long each pass took")->group("Passes");
    app.add_flag("--bisect", passes.bisect,
                 "the first pass after which results are wrong, by the float64 interpreter; on the CPU the kernels too")
        ->group("Passes");
}

void add_variant(CLI::App& app, std::string& variant) {
    app.add_option("variant", variant, "a name from `forge list`, or a file")->required()->type_name("VARIANT|FILE");
}

CLI::App* add_command(CLI::App& app, const char* name, const char* what, const char* example) {
    CLI::App* command = app.add_subcommand(name, what);
    command->footer(fmt::format("Example:  {}", example));
    return command;
}

}  // namespace forge::tools
