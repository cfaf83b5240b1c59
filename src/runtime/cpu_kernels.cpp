#include "runtime/cpu_kernels.h"

#include <fmt/format.h>

#include <cstdlib>

#include "forge/error.h"
#include "runtime/skip.h"
#include "runtime/stretches.h"
#include "runtime/threads.h"
#include "support/checked.h"

namespace forge::runtime {
namespace {

constexpr std::size_t kAlignment = 64;

/// Vector loads at the end of the last tile may run past it.
constexpr std::size_t kSlackFloats = 4096;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Sequences, chunks or segments: what a kernel has tasks for, per head and tile.
std::int64_t units_of(plan::Loop loop, const Stretch& stretch, const Bound& bound) {
    if (loop == plan::Loop::Carries) return bound.sequences;
    if (plan::per_segment(loop)) return bound.segments;
    return static_cast<std::int64_t>(loop == plan::Loop::Chunks ? stretch.chunk_sequence.size()
                                                                : stretch.sequences.size());
}

struct Free {
    void operator()(void* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc): aligned_alloc's partner
};

}  // namespace

/// Where things lie in the workspace: one scratch arena per thread, then the spills.
struct CpuKernels::Workspace {
    std::size_t scratch_bytes = 0, bytes = 0;
    std::vector<std::size_t> spills;
};

CpuKernels::Workspace CpuKernels::lay_out(const Bound& bound) const {
    Workspace w;
    std::int64_t floats = 0;
    for (const auto& kernel : plan_.kernels) floats = std::max(floats, kernel.tiles.scratch_floats);
    w.scratch_bytes = aligned((static_cast<std::size_t>(floats) + kSlackFloats) * sizeof(float));
    support::Checked bytes = support::Checked(static_cast<std::int64_t>(w.scratch_bytes)) * threads_;
    for (const auto& spill : plan_.spills) {
        w.spills.push_back(workspace_size(plan_, bytes));
        const support::Checked blocks = spill_blocks(plan_, spill, bound);
        bytes = bytes + (blocks * spill.floats * sizeof(float)).rounded_up(kAlignment);
    }
    w.bytes = workspace_size(plan_, bytes);
    return w;
}

void CpuKernels::launch(const Bound& bound, const Workspace& w, char* memory, const ParallelFor& threads) const {
    std::vector<float*> spills;
    for (const std::size_t offset : w.spills)
        spills.push_back(reinterpret_cast<float*>(memory + offset));  // NOLINT: workspace is bytes
    device::Call args{bound.tensors.data(),
                      bound.scalars.data(),
                      spills.data(),
                      bound.start.data(),
                      bound.tokens.data(),
                      0,
                      0,
                      nullptr,
                      nullptr,
                      nullptr,  // the stretch
                      bound.first_segment.data(),
                      bound.segment_sequence.data(),
                      bound.segment_rows,
                      bound.sequences,
                      bound.heads,
                      1,
                      bound.slots};
    const auto on_threads = [&](std::int64_t tasks, const auto& run) {
        if (threads) threads(tasks, threads_, run);
        else parallel_for(tasks, threads_, run);
    };
    clear_skipped(plan_, bound);
    for (const Stretch& stretch : stretches_of(plan_, bound)) {
        args.stretch_row = stretch.row, args.stretch_end = stretch.end;
        args.scan_sequence = stretch.sequences.data();
        args.first_chunk = stretch.first_chunk.data(), args.chunk_sequence = stretch.chunk_sequence.data();
        for (std::size_t k = 0; k < kernels_.size(); ++k) {
            args.tiles = plan_.tiles(plan_.kernels[k]);
            const auto run = [&](std::int64_t task, int worker) {
                kernels_[k](
                    args, task,
                    reinterpret_cast<float*>(memory + w.scratch_bytes * static_cast<std::size_t>(worker)));  // NOLINT
            };
            const std::int64_t tasks = units_of(plan_.kernels[k].graph.loop, stretch, bound) * bound.heads * args.tiles;
            on_threads(tasks, run);
        }
    }
    if (last_rows_)
        on_threads(bound.sequences * bound.heads, [&](std::int64_t task, int) { last_rows_(args, task, nullptr); });
}

void CpuKernels::run(const Call& call) const {
    if (kernels_.empty()) throw RuntimeError(fmt::format("{}: {}", plan_.definition.name, kNotLoaded));
    const Bound bound = bind(plan_, call);
    const Workspace w = lay_out(bound);
    if (call.workspace || call.workspace_size) check_workspace(plan_, call, w.bytes, kAlignment);
    if (call.workspace) return launch(bound, w, static_cast<char*>(call.workspace), call.parallel_for);
    const std::unique_ptr<char, Free> memory(static_cast<char*>(std::aligned_alloc(kAlignment, w.bytes)));
    if (!memory)
        throw RuntimeError(fmt::format("{}: workspace: cannot allocate {} bytes", plan_.definition.name, w.bytes));
    launch(bound, w, memory.get(), call.parallel_for);
}

std::size_t CpuKernels::workspace_bytes(const Call& call) const { return lay_out(bind(plan_, call)).bytes; }
std::size_t CpuKernels::workspace_bytes(const Bounds& bounds) const { return lay_out(bind(plan_, bounds)).bytes; }

}  // namespace forge::runtime
