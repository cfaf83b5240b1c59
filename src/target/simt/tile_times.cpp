#include "target/simt/tile_times.h"

#include <algorithm>

#include "support/divide.h"

namespace forge::target {
namespace {

/// What a block of threads takes per chunk, alone on its multiprocessor: set by hand to measurements of an H200
/// (bench/results/2026-11-21-h200-portable-one-pass.csv, when these kernels made all in one scan), so within a factor
/// of two rather than a few percent.
struct TileTimes {
    double start;        ///< microseconds of a call: launch, first loads and last stores
    double step;         ///< … of an operation with barriers around it
    double decays;       ///< … of a product whose channels decay on their own
    double flops;        ///< of products per microsecond
    double elementwise;  ///< other operations per microsecond
};
constexpr TileTimes kTiles = {.start = 6, .step = 0.3, .decays = 8, .flops = 4e5, .elementwise = 6e4};

/// Operations that begin and end with a barrier.
int steps_of(const ir::Function& fn) {
    return static_cast<int>(std::count_if(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return op.layout && op.layout->space == ir::Layout::Space::Tile && !ir::is_view(op.code);
    }));
}

int decays_of(const ir::Function& fn) {
    return static_cast<int>(std::count_if(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return op.code == ir::Opcode::DecayMatmul || op.code == ir::Opcode::DecayApply;
    }));
}

/// Tasks that hide each other's waits on a multiprocessor: two where their tiles fill its shared memory.
std::int64_t at_once(const plan::Schedule& schedule) {
    constexpr std::int64_t kOfTiles = 2;
    return schedule.holds_states ? schedule.resident_blocks : kOfTiles;
}

}  // namespace

void predict_tiles_kernel(StageCost& k, const plan::Kernel& kernel, const plan::Schedule& schedule,
                          const GpuFacts& gpu) {
    const double runs = static_cast<double>(k.tasks * std::max<std::int64_t>(1, k.hops));
    const double hop = kTiles.step * steps_of(kernel.tiles.fn) + kTiles.decays * decays_of(kernel.tiles.fn) +
                       k.flops / runs / kTiles.flops + k.elementwise / runs / kTiles.elementwise;
    const double chain = 1e-6 * hop * static_cast<double>(k.hops);
    k.latency_seconds = chain;
    k.arithmetic_seconds =
        chain * static_cast<double>(k.tasks) / static_cast<double>(at_once(schedule) * gpu.multiprocessors);
    k.seconds = std::max({k.memory_seconds, k.latency_seconds, k.arithmetic_seconds});
}

void predict_tiles(CallCost& cost, const plan::Plan& plan, const GpuFacts& gpu) {
    cost.seconds = 1e-6 * kTiles.start;
    for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
        predict_tiles_kernel(cost.kernels[i], plan.kernels[i], plan.schedule, gpu);
        cost.seconds += cost.kernels[i].seconds;
    }
    cost.basis = "rough times of portable kernels' operations on an NVIDIA H200";
}

}  // namespace forge::target
