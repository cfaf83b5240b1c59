#include "target/simt/tile_times.h"

#include <algorithm>

#include "support/divide.h"
#include "tile/far.h"
#include "tile/fragments.h"
#include "tile/lower.h"
#include "tile/order.h"

namespace forge::target {
namespace {

/// What a block of 256 threads takes per chunk, alone on its multiprocessor: fitted to 96 kernels on an H200
/// (bench/fit_tiles.py, bench/results/2026-11-30-h200-portable-kernels.csv), whose times it gives within factors of
/// 0.57 and 1.42.
struct TileTimes {
    double start;        ///< microseconds of a call: launch, first loads and last stores
    double chunk;        ///< … of a chunk
    double step;         ///< … of an operation with barriers around it
    double decays;       ///< … of a product of 64 tokens whose channels decay on their own
    double inverse;      ///< … of an inverse of 64 rows, beside its products
    double flops;        ///< of products per microsecond
    double elementwise;  ///< other operations per microsecond
    double loads;        ///< floats of tiles that tasks of one chunk load, per microsecond
    double loads_ahead;  ///< … that were asked for during the chunk before
    double far;          ///< floats that are read from tiles in global memory, or written to them, per microsecond
    double beside;       ///< how much longer each of two blocks on a multiprocessor takes
    // Blocks of 512 threads, of as much: kernels of few operations, and of so many that their text fills caches.
    double wide, wide_long;
    int long_steps;
};
constexpr TileTimes kTiles = {.start = 6,
                              .chunk = 0.56,
                              .step = 0.23,
                              .decays = 8.8,
                              .inverse = 3.9,
                              .flops = 9.4e5,
                              .elementwise = 7.7e4,
                              .loads = 7.5e3,
                              .loads_ahead = 1.2e4,
                              .far = 1e4,
                              .beside = 0.35,
                              .wide = 1.05,
                              .wide_long = 0.9,
                              .long_steps = 40};

/// … per token where threads hold the states, set by hand to an H200's calls of few sequences.
constexpr double kHoldingStep = 0.3, kHoldingFlops = 4e5, kHoldingElementwise = 6e4;

bool is_tile(const ir::Op& op) {
    return op.layout && op.layout->space == ir::Layout::Space::Tile && !ir::is_view(op.code);
}

/// What a kernel does for a chunk, operation by operation.
class Chunk {
  public:
    Chunk(const plan::Kernel& kernel, const tile::Rules& rules)
        : fn_(kernel.tiles.fn),
          far_from_(kernel.tiles.scratch_floats),
          rules_(rules),
          loads_rate_(plan::in_order(kernel.graph.loop) ? kTiles.loads_ahead : kTiles.loads) {
        for (ir::ValueId v = 0; v < fn_.size(); ++v)
            if (is_tile(fn_.op(v))) add(v);
    }

    [[nodiscard]] double microseconds(double flops, double elementwise) const {
        return kTiles.chunk + kTiles.step * steps_ + kTiles.decays * decays_ + kTiles.inverse * inverses_ +
               flops / kTiles.flops + elementwise / kTiles.elementwise + loads_ / loads_rate_ + far_ / kTiles.far;
    }
    [[nodiscard]] int steps() const { return steps_; }

  private:
    void add(ir::ValueId v) {
        const ir::Op& op = fn_.op(v);
        const double blocks = op.type.rank() == 0 ? 0 : static_cast<double>(tile::size_of(op.type, 0)) / tile::kBlock;
        ++steps_;
        if (op.code == ir::Opcode::DecayMatmul || op.code == ir::Opcode::DecayApply) decays_ += blocks * blocks;
        if (op.code == ir::Opcode::Inverse) inverses_ += blocks * blocks;
        const bool stays = tile::is_carried(op.attrs.role) || op.attrs.role == ir::Role::Head;
        if (op.code == ir::Opcode::Param && !stays) loads_ += floats(v);
        if (is_far(v)) far_ += floats(v);
        for (const ir::ValueId t : tile::tiles_read_by(fn_, v))
            if (is_far(t)) far_ += tile::reads_of(fn_, v, t) * floats(t);
    }
    [[nodiscard]] double floats(ir::ValueId v) const {
        return static_cast<double>(tile::tile_floats(fn_.op(v).type, rules_));
    }
    [[nodiscard]] bool is_far(ir::ValueId v) const {
        return is_tile(fn_.op(v)) && fn_.op(v).layout->offset >= far_from_;
    }

    const ir::Function& fn_;
    std::int64_t far_from_;
    tile::Rules rules_;
    double loads_rate_;
    int steps_ = 0;
    double decays_ = 0, inverses_ = 0, loads_ = 0, far_ = 0;
};

/// Blocks that a multiprocessor has at a time, which hide each other's waits: as many as its shared memory has room
/// for, and its registers, of which threads take half of the most that they may, or, without products, a quarter.
std::int64_t at_once(const StageCost& k, const plan::Kernel& kernel, const plan::Schedule& schedule,
                     const GpuFacts& gpu) {
    constexpr std::int64_t kOthers = 4096;
    if (kernel.tiles.far_floats > 0) return 1;
    const std::int64_t threads = k.flops > 0 ? 512 : 1024,
                       bytes = kernel.tiles.scratch_floats * static_cast<std::int64_t>(sizeof(float)) + kOthers;
    return std::clamp<std::int64_t>(gpu.shared_bytes / bytes, 1,
                                    std::max<std::int64_t>(1, threads / schedule.block_threads));
}

double of_threads(int threads, int steps) {
    constexpr int kWide = 512;
    return threads < kWide ? 1 : steps < kTiles.long_steps ? kTiles.wide : kTiles.wide_long;
}

/// `blocks`: at a time, which hide each other's waits.
void predict_holding(StageCost& k, int steps, std::int64_t blocks) {
    const double runs = static_cast<double>(k.tasks * k.hops);
    const double token =
        kHoldingStep * steps + k.flops / runs / kHoldingFlops + k.elementwise / runs / kHoldingElementwise;
    k.latency_seconds = 1e-6 * token * static_cast<double>(k.hops);
    k.arithmetic_seconds = k.latency_seconds * static_cast<double>(k.tasks) / static_cast<double>(blocks);
    k.seconds = std::max({k.memory_seconds, k.latency_seconds, k.arithmetic_seconds});
}

}  // namespace

void predict_tiles_kernel(StageCost& k, const plan::Kernel& kernel, const plan::Schedule& schedule,
                          const GpuFacts& gpu) {
    const double runs = static_cast<double>(k.tasks * std::max<std::int64_t>(1, k.hops));
    const Chunk chunk(kernel, schedule.rules());
    if (schedule.holds_states) return predict_holding(k, chunk.steps(), schedule.resident_blocks * gpu.multiprocessors);
    const double hop =
        chunk.microseconds(k.flops / runs, k.elementwise / runs) * of_threads(schedule.block_threads, chunk.steps());
    const double chain = 1e-6 * hop * static_cast<double>(k.hops);
    k.latency_seconds = chain;
    const std::int64_t blocks = at_once(k, kernel, schedule, gpu),
                       rounds = support::divide_up(k.tasks, blocks * gpu.multiprocessors);
    const bool alone = k.tasks <= gpu.multiprocessors;
    k.arithmetic_seconds =
        chain * static_cast<double>(rounds) * (alone ? 1 : 1 + kTiles.beside * static_cast<double>(blocks - 1));
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
