/// The two targets whose kernels hold fragments: by the instructions of warp groups, and by those of warps.
#include <fmt/format.h>

#include "emit/cuda/emit_cuda.h"
#include "graph/transition.h"
#include "target/gpu_cost.h"
#include "target/gpu_target.h"
#include "target/hopper/scan_times.h"
#include "target/hopper/warp_groups.h"

namespace forge::target {
namespace {

using plan::Engine;
using plan::Schedule;
using plan::Strategy;

constexpr int kHopper = 9;  ///< major compute capability
/// Of shared memory, where there is little: two floats per thread for device functions, and what aligning tiles takes.
constexpr std::int64_t kNotForTiles = 2 * 1024;

/// Adds what the model says from which the number of segments follows. It knows scans, each alone on a multiprocessor,
/// that make all themselves.
void estimate(Candidate& candidate, const ir::Definition& definition, const ir::Function& program,
              const Question& question) {
    const Schedule& s = candidate.schedule;
    const std::int64_t tasks = question.problem.sequences * question.problem.heads * s.tiles;
    const bool one_pass = s.strategy == Strategy::OnePass, joined = s.summaries > 0;
    if (!candidate.possible() || s.share || s.output_groups == 0 || (!one_pass && !joined) ||
        tasks * s.segments > question.gpu()->multiprocessors)
        return;
    const tile::Sizes& sizes = question.problem.sizes;
    SegmentTimes times =
        segment_times(definition, program, sizes, s.held(sizes), fit_wishes(question.problem, candidate.wishes));
    times.segments = s.segments, times.summaries = s.summaries;
    candidate.estimate_s = 1e-6 * (one_pass ? times.in_one_pass() : times.in_segments());
    candidate.note = fmt::format("{} products and {} matrices per chunk", times.products, times.matrices);
}

template <Engine ENGINE>
Schedule fit(const ir::Definition& definition, const ir::Function& program, const Question& question,
             const Wishes& wishes) {
    const GpuFacts& gpu = *question.gpu();
    if (ENGINE == Engine::WarpGroups && gpu.major != kHopper) refuse(Reason::Capability, gpu.major, gpu.minor);
    if (wishes.threads != 0 && wishes.threads != kGroupThreads) refuse(Reason::OtherThreads, wishes.threads);
    FitWishes these = fit_wishes(question.problem, wishes);
    these.fragments = ENGINE;
    SharedMemory memory = shared_memory_of(gpu, kGroupThreads);
    if (ENGINE == Engine::Warps) {
        memory.bytes = gpu.shared_bytes - kNotForTiles;
        memory.bytes_per_microsecond = 1e-6 * peaks_of(gpu).memory;
    }
    return fit_warp_groups(definition, program, question.problem.sizes, memory, these);
}

template <Engine ENGINE>
std::vector<Candidate> candidates(const ir::Definition& definition, const ir::Function& program,
                                  const Question& question, Range range) {
    const bool by_groups = ENGINE == Engine::WarpGroups, all = range == Range::All;
    auto found = tried(by_groups ? warp_groups_target() : warps_target(), fit<ENGINE>, definition, program, question,
                       all ? placements(question.wishes) : std::vector<Wishes>());
    if (by_groups && all)
        for (Candidate& c : found) estimate(c, definition, program, question);
    return found;
}

}  // namespace

const Target& warp_groups_target() {
    static const Target kTarget = {"warp-groups",
                                   "chunks of 64 tokens on Hopper's warp-group matrix units",
                                   false,
                                   [](const Question& q) {
                                       return q.gpu() && !q.by_token() &&
                                              q.wishes.engine.value_or(Engine::WarpGroups) == Engine::WarpGroups;
                                   },
                                   candidates<Engine::WarpGroups>,
                                   emit::emit_cuda,
                                   ".cu"};
    return kTarget;
}

const Target& warps_target() {
    static const Target kTarget = {
        "warps",
        "chunks of 64 tokens on the matrix units of a group's four warps",
        false,
        [](const Question& q) {
            // A Hopper GPU has better, but for those that ask.
            return q.gpu() && !q.by_token() &&
                   (q.wishes.engine ? q.wishes.engine == Engine::Warps : q.gpu()->major != kHopper);
        },
        candidates<Engine::Warps>,
        emit::emit_cuda,
        ".cu"};
    return kTarget;
}

}  // namespace forge::target
