#include "schedule/warp_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/slice.h"
#include "graph/transition.h"
#include "tile/fragments.h"

namespace forge::schedule {
namespace {

using ir::Opcode;
using plan::NotForWarpGroups;
using plan::Schedule;
using plan::Strategy;
using tile::kBlock;

constexpr int kThreads = 128;
constexpr std::int64_t kTasksPerProcessor = 2;   ///< that hide each other's waits
constexpr std::int64_t kLeastChunks = 16;        ///< of a segment that is worth its summary
constexpr std::int64_t kLeastSegments = 3;       ///< fewer do not make up for two more kernels

bool has_halves(const ir::Definition& definition) {
    return std::any_of(definition.inputs.begin(), definition.inputs.end(), [](const ir::InputDecl& in) { return is_half(in.type.dtype); });
}

/// Whether work that needs no state takes long steps of its own: it is then better done ahead, for all chunks at once.
bool has_long_steps(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(),
                       [](const ir::Op& op) { return op.code == Opcode::Inverse || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply; });
}

std::string value_axis(const ir::Function& program, const tile::Sizes& sizes) {
    for (const std::string& axis : graph::parallel_axes(program))
        if (const auto it = sizes.find(axis); it != sizes.end() && it->second % kBlock == 0) return axis;
    throw NotForWarpGroups("no axis of the states along which tasks could take blocks of 64");
}

/// Whether segments can be joined without products of matrices.
bool cheap_summaries(const ir::Function& program) {
    const auto all = graph::transitions(program);
    return std::all_of(all.begin(), all.end(), [](const graph::Transition& t) { return t.composable() && !t.is_matrix(); });
}

/// The most stages with which tasks that go through chunks in order still fit: one per multiprocessor, or two.
template <class MakePlan>
Schedule with_stages(Schedule s, const SharedMemory& memory, bool two_tasks, MakePlan make_plan) {
    constexpr int kMostStages = 4;
    for (s.stages = kMostStages; s.stages >= 2; --s.stages) {
        std::int64_t in_order = 0;
        std::string largest;
        std::int64_t most = 0;
        for (const plan::Kernel& kernel : make_plan(s).kernels) {
            const std::int64_t bytes = kernel.tiles.scratch_floats * static_cast<std::int64_t>(sizeof(float));
            if (kernel.graph.loop == plan::Loop::Scan || kernel.graph.loop == plan::Loop::Segments) in_order = bytes;
            if (bytes > most) most = bytes, largest = kernel.graph.name;
        }
        const bool fits = most <= memory.bytes && (!two_tasks || 2 * in_order <= memory.bytes);
        if (fits || (s.stages == 2 && most <= memory.bytes)) return s;
        if (s.stages == 2) throw NotForWarpGroups(fmt::format("{} needs {} bytes of shared memory", largest, most));
    }
    throw NotForWarpGroups("shared memory");
}

}  // namespace

Schedule fit_warp_groups(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes) {
    if (std::none_of(program.ops.begin(), program.ops.end(), [](const ir::Op& op) { return ir::is_matmul(op.code); })) throw NotForWarpGroups("no products");
    if (!has_halves(definition)) throw NotForWarpGroups("inputs of 32 bits");
    if (wishes.chunk != 0 && wishes.chunk != kBlock) throw NotForWarpGroups(fmt::format("chunks of {} tokens", wishes.chunk));
    Schedule s;
    s.chunk = kBlock;
    s.vector_width = 4;
    s.shared_memory = s.tile_chunks = true;
    s.engine = plan::Engine::WarpGroups;
    s.block_threads = kThreads;
    s.tile_axis = value_axis(program, sizes);
    s.tiles = wishes.tiles ? wishes.tiles : sizes.at(s.tile_axis) / kBlock;
    s.tile_size = sizes.at(s.tile_axis) / s.tiles;
    s.share = has_long_steps(program);
    const std::int64_t tasks = std::max<std::int64_t>(1, wishes.expected_tasks * s.tiles);
    const std::int64_t segments = std::min(kTasksPerProcessor * memory.multiprocessors / tasks, wishes.expected_tokens / (kLeastChunks * kBlock));
    s.strategy = wishes.strategy.value_or(segments >= kLeastSegments && cheap_summaries(program) ? Strategy::Segmented : Strategy::OnePass);
    if (s.strategy == Strategy::Segmented) s.segments = wishes.segments ? wishes.segments : std::max<std::int64_t>(2, segments);
    return with_stages(s, memory, s.strategy == Strategy::Segmented || tasks > memory.multiprocessors, [&](const Schedule& tried) {
        return plan::make_plan(definition, program, sizes, tried);
    });
}

}  // namespace forge::schedule
