#include "gpu/candidates.h"

#include <algorithm>

#include "compile/gpu_schedule.h"
#include "forge/error.h"
#include "schedule/choose.h"
#include "tune/gpu.h"

namespace forge::gpu {
namespace {

/// Variations of the options in the order of the list; many of them come out the same, or do not fit.
std::vector<CompileOptions> variations(const CompileOptions& base) {
    std::vector<CompileOptions> list = {base};
    const auto add = [&](auto change) {
        list.push_back(base);
        change(list.back());
    };
    const char* const strategies[] = {"one-pass", "segmented", "fused", "decoupled"};
    for (const char* strategy : strategies) add([&](CompileOptions& o) { o.strategy = strategy; });
    for (const std::int64_t segments : {4, 8, 2, 16, 32})
        add([&](CompileOptions& o) { o.strategy = "segmented", o.segments = segments; });
    for (const std::int64_t tiles : {1, 2, 4, 8})
        add([&](CompileOptions& o) { o.strategy = "one-pass", o.tiles = tiles; });
    for (const int threads : {128, 256, 512}) add([&](CompileOptions& o) { o.threads = threads; });
    for (const char* strategy : strategies)
        add([&](CompileOptions& o) { o.engine = "portable", o.strategy = strategy; });
    for (const int threads : {128, 512}) add([&](CompileOptions& o) { o.engine = "portable", o.threads = threads; });
    for (const std::int64_t chunk : {32, 128}) add([&](CompileOptions& o) { o.engine = "portable", o.chunk = chunk; });
    return list;
}

template <class T>
bool keeps(const T& asked, const T& open, const T& varied) {
    return asked == open || varied == asked;
}

/// Whether a variation leaves what the caller fixed as it is.
bool within(const CompileOptions& asked, const CompileOptions& o) {
    return keeps<std::string>(asked.strategy, "auto", o.strategy) &&
           keeps<std::string>(asked.engine, "auto", o.engine) && keeps<std::int64_t>(asked.chunk, 0, o.chunk) &&
           keeps<std::int64_t>(asked.tiles, 0, o.tiles) && keeps<std::int64_t>(asked.segments, 0, o.segments) &&
           keeps(asked.threads, 0, o.threads);
}

}  // namespace

std::vector<Candidate> candidates(const ir::Definition& definition, const ir::Function& program,
                                  const CompileOptions& options, const schedule::GpuFacts& device, std::size_t most) {
    std::vector<Candidate> found;
    for (const CompileOptions& varied : variations(options)) {
        if (found.size() >= most) break;
        if (!within(options, varied)) continue;
        try {
            const plan::Schedule schedule = compiler::cuda_schedule(definition, program, varied, device);
            const auto same = [&](const Candidate& c) { return schedule::same_choice(c.schedule, schedule); };
            if (std::none_of(found.begin(), found.end(), same))
                found.push_back({tune::asking_for(varied, schedule), schedule});
        } catch (const RuntimeError&) {  // it does not fit
        } catch (const CompileError&) {  // a strategy that the program does not admit
        } catch (const plan::NotForWarpGroups&) {}
    }
    return found;
}

}  // namespace forge::gpu
