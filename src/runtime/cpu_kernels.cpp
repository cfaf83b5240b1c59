#include "runtime/cpu_kernels.h"

#include <fmt/format.h>

#include <cstdlib>

#include "forge/error.h"
#include "runtime/skip.h"
#include "runtime/stretches.h"
#include "runtime/tables.h"

namespace forge::runtime {
namespace {

/// Vector loads at the end of the last tile may run past it.
constexpr std::size_t kSlackFloats = 4096;

std::size_t aligned(std::size_t bytes) { return (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment; }

/// Sequences, chunks or segments: what a kernel has tasks for, per head and tile.
std::int64_t units_of(Loop loop, const Stretch& stretch, const Bound& bound) {
    if (loop == Loop::Carries) return bound.sequences;
    if (per_segment(loop)) return bound.segments;
    return static_cast<std::int64_t>(loop == Loop::Chunks ? stretch.chunk_sequence.size() : stretch.sequences.size());
}

struct Free {
    void operator()(void* p) const { std::free(p); }  // NOLINT(cppcoreguidelines-no-malloc): aligned_alloc's partner
};

}  // namespace

/// Where things lie in the workspace: the call's lists, one scratch arena per thread, then the spills.
struct CpuKernels::Workspace {
    explicit Workspace(Memory* memory) : spills(memory) {}
    std::size_t tables_bytes = 0, scratch_bytes = 0, bytes = 0;
    List<std::size_t> spills;
};

CpuKernels::Workspace CpuKernels::lay_out(const Bound& bound) const {
    Workspace w(bound.memory());
    std::int64_t floats = 0;
    for (const KernelOfCall& kernel : callable_.kernels) floats = std::max(floats, kernel.scratch_floats);
    w.scratch_bytes = aligned((static_cast<std::size_t>(floats) + kSlackFloats) * sizeof(float));
    support::Checked bytes = table_bytes(callable_, bound).rounded_up(kHostAlignment);
    w.tables_bytes = workspace_size(callable_, bytes);
    bytes = bytes + support::Checked(static_cast<std::int64_t>(w.scratch_bytes)) * threads_;
    w.spills.reserve(callable_.spills.size());
    for (const Spill& spill : callable_.spills) {
        w.spills.push_back(workspace_size(callable_, bytes));
        const support::Checked blocks = spill_blocks(callable_, spill, bound);
        bytes = bytes + (blocks * spill.floats * sizeof(float)).rounded_up(kHostAlignment);
    }
    w.bytes = workspace_size(callable_, bytes);
    return w;
}

void CpuKernels::launch(const Bound& bound, const Workspace& w, char* memory, const Threads& threads, Step step) const {
    List<float*> spills(bound.memory());
    spills.reserve(w.spills.size());
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
                      bound.slots,
                      step == Step::EverySummary ? 1 : 0};
    const auto on_threads = [&](std::int64_t tasks, const auto& run) {
        const Body body = body_of(run);
        if (threads.run) threads.run(threads.context, tasks, threads_, body.run, body.data);
        else run_in_parallel(tasks, threads_, body);
    };
    const std::size_t summaries = kernels_of_summaries(callable_);
    const std::size_t first = step == Step::AfterSummaries ? summaries : 0,
                      end = step == Step::Whole || step == Step::AfterSummaries ? kernels_.size() : summaries;
    clear_skipped(callable_, bound);
    Stretches stretches(callable_, bound);
    while (const Stretch* stretch = stretches.next()) {
        args.stretch_row = stretch->row, args.stretch_end = stretch->end;
        args.scan_sequence = stretch->sequences.data();
        args.first_chunk = stretch->first_chunk.data(), args.chunk_sequence = stretch->chunk_sequence.data();
        for (std::size_t k = first; k < end; ++k) {
            const KernelOfCall& kernel = callable_.kernels[k];
            args.tiles = kernel.tiles;
            char* const scratch = memory + w.tables_bytes;
            const auto run = [&](std::int64_t task, int worker) {
                kernels_[k](
                    args, task,
                    reinterpret_cast<float*>(scratch + w.scratch_bytes * static_cast<std::size_t>(worker)));  // NOLINT
            };
            on_threads(units_of(kernel.loop, *stretch, bound) * bound.heads * args.tiles, run);
        }
    }
    if (last_rows_ && end == kernels_.size())
        on_threads(bound.sequences * bound.heads, [&](std::int64_t task, int) { last_rows_(args, task, nullptr); });
}

void CpuKernels::run(const Arguments& call, Step step) const {
    if (kernels_.empty()) throw RuntimeError(fmt::format("{}: {}", callable_.name, kNotLoaded));
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(call.workspace) % kHostAlignment == 0;  // NOLINT
    Tables tables(is_aligned ? call.workspace : nullptr, call.workspace_bytes.value_or(0));
    const Bound bound = bind(callable_, call, Lengths::OnHost, &tables);
    const Workspace w = lay_out(bound);
    if (call.workspace || call.workspace_bytes) check_workspace(callable_, call, w.bytes, kHostAlignment);
    if (call.workspace) {
        tables.end_at(w.tables_bytes);
        return launch(bound, w, static_cast<char*>(call.workspace), call.threads, step);
    }
    const std::unique_ptr<char, Free> memory(static_cast<char*>(std::aligned_alloc(kHostAlignment, w.bytes)));
    if (!memory) throw RuntimeError(fmt::format("{}: workspace: cannot allocate {} bytes", callable_.name, w.bytes));
    launch(bound, w, memory.get(), call.threads, step);
}

SummaryPlaces CpuKernels::summaries(const Arguments& call, std::int64_t n, std::span<const std::int64_t>) const {
    const Bound bound = bind(callable_, call);
    SummaryPlaces places;
    for (const std::size_t offset : lay_out(bound).spills)
        places.spills.push_back(
            reinterpret_cast<float*>(static_cast<char*>(call.workspace) + offset));  // NOLINT: bytes
    const auto row = static_cast<std::size_t>(n);
    places.heads = bound.heads;
    places.first = bound.first_segment.at(row), places.count = bound.first_segment.at(row + 1) - places.first;
    return places;
}

std::size_t CpuKernels::workspace_bytes(const Arguments& call) const { return lay_out(bind(callable_, call)).bytes; }
std::size_t CpuKernels::workspace_bytes(const Bounds& bounds) const { return lay_out(bind(callable_, bounds)).bytes; }

}  // namespace forge::runtime
