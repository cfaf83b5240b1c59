#include "tune/gpu.h"

#include <algorithm>

#include "ir/text.h"
#include "support/environment.h"
#include "support/hash.h"
#include "tune/select.h"

namespace forge::tune {
namespace {

/// All but the chunk, which every measurement has.
bool leaves_all_open(const CompileOptions& o) {
    return o.tuned && o.strategy == "auto" && o.engine == "auto" && o.tiles == 0 && o.segments == 0 && o.threads == 0;
}

}  // namespace

Key gpu_key(const ir::Function& program, const CompileOptions& options, const std::string& device) {
    return {support::hash(ir::print(program)), device, shape_class(expected_problem(options), options.dtype)};
}

CompileOptions asking_for(CompileOptions options, const plan::Schedule& schedule) {
    options.tuned = false;
    options.threads = schedule.block_threads;
    if (schedule.engine == plan::Engine::Channels) return options;  // nothing else is chosen there
    options.engine = schedule.warp_groups() ? "warp-groups" : "portable";
    options.strategy = plan::to_string(schedule.strategy);
    options.chunk = schedule.chunk;
    options.tiles = schedule.tiles;
    options.segments = schedule.strategy == plan::Strategy::Segmented ? schedule.segments : 0;
    return options;
}

std::optional<CompileOptions> tuned_options(const CompileOptions& options, const Key& key) {
    if (!leaves_all_open(options)) return std::nullopt;
    std::vector<schedule::Measurement> found =
        load(options.cache_dir.empty() ? support::default_cache_dir() : options.cache_dir).find(key);
    if (options.chunk != 0)  // asked for, or fixed by the definition
        std::erase_if(found, [&](const auto& m) { return m.schedule.chunk != options.chunk; });
    const auto fastest = std::min_element(found.begin(), found.end(),
                                          [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    return fastest == found.end() ? std::nullopt : std::optional(asking_for(options, fastest->schedule));
}

}  // namespace forge::tune
