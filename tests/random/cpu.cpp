#include <fmt/format.h>

#include "forge/error.h"
#include "plan/plan.h"
#include "program/entry_point.h"
#include "support/environment.h"
#include "tests/random/served.h"

namespace forge::fuzz {
namespace {

constexpr const char* kStrategies[] = {"one-pass", "fused", "decoupled", "segmented", "auto"};
constexpr std::int64_t kChunks[] = {64, 16, 32, 128, 0};

CompileOptions choose(Subject& s, const std::string& name) {
    CompileOptions options{.dtype = s.program.dtype, .sizes = s.program.sizes, .tuned = false};
    const auto key = [&](const char* what) { return name + "." + what; };
    options.strategy = kStrategies[s.d.pick(key("strategy"), {2, 2, 2, 2, 1})];
    options.chunk = kChunks[s.d.pick(key("chunk"), {3, 1, 2, 1, 1})];
    options.threads = 1 + s.d.below(key("threads"), 2);
    if (options.strategy == "segmented") options.segments = s.d.pick(key("segments"), {1, 1, 1}) + 2;
    if (options.strategy != "segmented" && s.d.flip(key("tiles"), 0.15)) options.tiles = 2;
    if (program::has_decode(s.program.def) && s.d.flip(key("decode"), 0.2))
        options.entry = "decode", options.strategy = "auto", options.chunk = options.segments = 0;
    if (options.entry == "decode" && is_half(s.program.dtype) && s.d.flip(key("half_states"), 0.5))
        options.state_dtype = s.program.dtype;
    if (s.d.flip(key("plain"), 0.1)) options.isa = "plain";
    else if (s.d.flip(key("avx2"), 0.15) && support::machine_isa() == "avx512") options.isa = "avx2";
    options.chunk_states = !s.program.def.states.empty() && s.d.flip(key("kept"), 0.15);
    return options;
}

std::string describe(const CompileOptions& o) {
    return fmt::format("{}, {}, chunk {}, {} threads, {}{}", o.entry, o.strategy, o.chunk, o.threads, o.isa,
                       o.tiles > 0 ? fmt::format(", {} tiles", o.tiles) : "");
}

bool is_not_affine(const CompileError& error) {
    return error.diagnostics()[0].what.find("is not affine") != std::string::npos;
}

}  // namespace

Engine cpu_engine(int ways) {
    return {
        "cpu", [ways](Subject& s, Tally& tally) {
            std::vector<std::string> found;
            for (int way = 0; way < ways && found.empty(); ++way) {
                CompileOptions options = choose(s, fmt::format("cpu{}", way));
                std::optional<Attention> attention;
                try {
                    attention = compile(s.program.def, options);
                } catch (const CompileError& error) {
                    if (options.strategy != "segmented" || !is_not_affine(error)) throw;
                    ++tally["cpu: segmented, but not affine"];
                    continue;
                } catch (const RuntimeError& error) {
                    if (options.tiles == 0 || std::string(error.what()).find("no schedule with") == std::string::npos)
                        throw;
                    ++tally["cpu: no axis to cut"];
                    continue;
                }
                ++tally["cpu: " + (options.entry == "decode" ? options.entry : attention->strategy())];
                if (is_half(options.state_dtype)) ++tally["cpu: states of 16 bits"];
                Served served{"cpu", describe(options), fmt::format("cpu{}", way),
                              [&](const Call& call, const auto&, unsigned) { (*attention)(call); }};
                served.state_dtype = options.state_dtype;
                served.kept_chunk = options.chunk_states ? attention->chunk() : 0;
                served.same_bits = attention->strategy() != "segmented";
                for (const int index : {0, 1})
                    if (found.empty()) found = faults_of_calls(s, index, served, tally);
            }
            return found;
        }};
}

}  // namespace forge::fuzz
