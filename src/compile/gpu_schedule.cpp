#include "compile/gpu_schedule.h"

#include <fmt/format.h>

#include "forge/error.h"
#include "schedule/channels.h"
#include "schedule/shared_memory.h"
#include "schedule/warp_groups.h"
#include "tune/select.h"

namespace forge::compiler {
namespace {

/// Shared memory that is not tiles: two floats per thread for device functions, slack behind the tiles, the system's.
constexpr std::int64_t other_shared_bytes(int threads) { return 2 * 4 * threads + 5 * 1024; }

}  // namespace

plan::Schedule cuda_schedule(const ir::Definition& definition, const ir::Function& program,
                             const CompileOptions& options, const schedule::GpuFacts& device) {
    schedule::FitWishes wishes;
    if (options.strategy != "auto") wishes.strategy = plan::strategy_named(options.strategy);
    wishes.chunk = options.chunk;
    wishes.tiles = options.tiles;
    wishes.segments = options.segments;
    const schedule::Problem expected = tune::expected_problem(options);
    wishes.expected_tokens = expected.tokens;
    wishes.expected_tasks = expected.sequences * expected.heads;
    if (options.threads != 0 && options.threads != 128 && options.threads != 256 && options.threads != 512)
        throw RuntimeError(fmt::format("threads: expected 128, 256 or 512 per task on a GPU, got {}", options.threads));
    const int threads = options.threads != 0 ? options.threads : plan::Schedule{}.block_threads;
    const bool chunks = options.entry != "decode";  // the other engines work on chunks of many tokens
    if (!chunks && options.engine == "warp-groups")
        throw RuntimeError(
            fmt::format("{}: engine: expected portable, which decode has, got '{}'", definition.name, options.engine));
    std::vector<Refusal> refused;
    if (chunks && options.engine == "auto") {
        const int of_clusters = device.major >= 9 ? device.multiprocessors : 0;
        try {
            return schedule::fit_channels(definition, program, options.sizes, wishes, options.threads, of_clusters);
        } catch (const Refused& why) {
            refused.push_back(why.refusal());
        }
    }
    const schedule::SharedMemory memory{device.shared_bytes - other_shared_bytes(threads), device.multiprocessors,
                                        device.shared_bytes};
    if (chunks && options.engine != "portable") {
        try {
            if (device.major != 9) refuse(Reason::Capability, device.major, device.minor);
            if (options.threads != 0 && options.threads != 128) refuse(Reason::OtherThreads, options.threads);
            plan::Schedule s = schedule::fit_warp_groups(definition, program, options.sizes, memory, wishes);
            s.refused.insert(s.refused.begin(), refused.begin(), refused.end());
            return s;
        } catch (const Refused& why) {
            if (options.engine == "warp-groups")
                throw RuntimeError(
                    fmt::format("{}: engine: expected a program for warp groups; {}", definition.name, why.what()));
            refused.push_back(why.refusal());
        }
    }
    plan::Schedule schedule = schedule::fit_shared_memory(definition, program, options.sizes, memory, wishes);
    schedule.block_threads = threads;
    schedule.refused = std::move(refused);
    return schedule;
}

}  // namespace forge::compiler
