#include "target/gpu_cost.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "forge/error.h"
#include "target/channels/channels.h"
#include "target/hopper/scan_times.h"
#include "target/simt/tile_times.h"

namespace forge::target {
namespace {

using ir::Along;
using ir::Role;

/// A generation of GPUs: what a multiprocessor does per clock, and the clock that products sustain.
struct Generation {
    int major, minor;
    double matrix_flops;  ///< of dense 16-bit products accumulated in float
    double lanes;         ///< simple operations on floats
    double hertz;
};
/// The last one stands for all that are newer.
constexpr Generation kGenerations[] = {{8, 0, 2048, 64, 1.41e9}, {8, 9, 512, 128, 2.52e9}, {9, 0, 4096, 128, 1.755e9}};

/// Of the rate that a memory's clock and width allow, what kernels reach (measured on an H200: 4.2 of 4.917 TB/s).
constexpr double kReached = 0.854;
/// Simple operations that take as long as an exponential: a multiprocessor has 16 units for these beside 128 lanes.
constexpr double kExponential = 8;

double elements(const ir::Type& type, const tile::Sizes& sizes) {
    double n = 1;
    for (const Dim& d : type.shape) {
        const auto size = sizes.find(d.symbol);  // tokens and heads have none here
        n *= static_cast<double>(d.factor * (size == sizes.end() ? 1 : size->second));
    }
    return n;
}

tile::Sizes sizes_of_chunk(const plan::Plan& plan) {
    tile::Sizes sizes = plan.sizes;
    sizes[ir::kChunkSymbol] = plan.schedule.chunk;
    return sizes;
}

/// Simple operations on the numbers of one chunk, products and inverses aside.
double elementwise_of(const ir::Function& fn, const tile::Sizes& sizes) {
    double sum = 0;
    for (const ir::Op& op : fn.ops) {
        const double n = elements(op.type, sizes);
        switch (ir::along(op.code)) {
            case Along::Pointwise:
            case Along::Triangle:
                sum += n * (ir::cost(op.code).vectors + kExponential * ir::cost(op.code).exponentials);
                break;
            case Along::Reduced:
            case Along::Scanned:
            case Along::RowScan:
            case Along::Normalised:
                sum += 2 * elements(fn.op(op.args[0]).type, sizes);
                break;
            case Along::Pairs:
            case Along::Rows:
                sum += kExponential * n;
                break;
            case Along::Leaf:
            case Along::Place:
            case Along::Copied:
            case Along::Shifted:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Selected:
            case Along::Cut:
            case Along::Broadcast:
            case Along::Repeated:
            case Along::Joined:
            case Along::Contracted:
            case Along::Matrix:
                break;
        }
    }
    return sum;
}

double bytes_of(const plan::Plan& plan, plan::TensorSlot::Kind kind, const std::string& name, double numbers) {
    const auto& slot = plan.tensors[static_cast<std::size_t>(plan.tensor(kind, name))];
    return numbers * static_cast<double>(size_in_bytes(slot.type.dtype));
}

double bytes_of_spill(const plan::Plan& plan, const std::string& name) {
    return static_cast<double>(plan.spills[static_cast<std::size_t>(plan.spill(name))].floats) * sizeof(float);
}

/// Of the states of a sequence and head, or of a segment, read where a task begins and written where it ends.
double bytes_of_states(const ir::Function& fn, const tile::Sizes& sizes) {
    double bytes = 0;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param && op.attrs.role == Role::State)
            bytes += 2 * elements(op.type, sizes) * sizeof(float);
    return bytes;
}

/// How many times the body runs for one tile: hops of all sequences and heads.
double bodies(const plan::Kernel& kernel, const Extent& extent) {
    return static_cast<double>(extent.tasks * extent.hops) / static_cast<double>(kernel.parts());
}

StageCost count_kernel(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem,
                       const GpuPeaks& peaks) {
    const Extent e = extent(plan, kernel, problem);
    const auto tasks = static_cast<double>(e.tasks), hops = static_cast<double>(e.hops);
    const tile::Sizes sizes = sizes_of_chunk(plan);
    StageCost k;
    k.name = kernel.graph.name, k.task = plan::tasks_of(kernel);
    k.tasks = e.tasks, k.hops = e.hops;
    if (kernel.engine != plan::Engine::Channels) k.flops = plan::useful_flops(kernel) * tasks * hops;
    k.elementwise = elementwise_operations(plan, kernel, problem);
    k.bytes = bytes_of_hops(plan, kernel, problem) +
              bytes_of_states(kernel.graph.fn, sizes) * tasks / static_cast<double>(kernel.parts());
    k.memory_seconds = k.bytes / peaks.memory;
    k.matrix_seconds = k.flops / peaks.matrix;
    k.arithmetic_seconds = k.elementwise / peaks.arithmetic;
    k.seconds = std::max({k.memory_seconds, k.matrix_seconds, k.arithmetic_seconds});
    return k;
}

Bound longest(double memory, double matrix, double arithmetic, double latency, double launch) {
    const std::array<std::pair<double, Bound>, 5> all = {{{memory, Bound::Memory},
                                                          {matrix, Bound::MatrixUnits},
                                                          {arithmetic, Bound::Arithmetic},
                                                          {latency, Bound::Latency},
                                                          {launch, Bound::Launch}}};
    return std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; })
        ->second;
}

/// Whether it takes so much more memory that its time does not count.
bool is_larger(const Takes& a, const Takes& b) {
    constexpr double kLarge = 0x1p32, kMore = 1.5;
    return a.bytes > kLarge && a.bytes > kMore * b.bytes;
}

}  // namespace

bool Takes::better_than(const Takes& other) const {
    return is_larger(*this, other) || is_larger(other, *this) ? bytes < other.bytes : time < other.time;
}

GpuPeaks peaks_of(const GpuFacts& gpu) {
    const Generation* found = &kGenerations[0];
    for (const Generation& g : kGenerations)
        if (std::pair(gpu.major, gpu.minor) >= std::pair(g.major, g.minor)) found = &g;
    const double clocks = found->hertz * gpu.multiprocessors;
    return {kReached * gpu.memory_bandwidth, found->matrix_flops * clocks, found->lanes * clocks};
}

double bytes_per_hop(const plan::Plan& plan, const plan::Kernel& kernel) {
    const ir::Function& fn = kernel.graph.fn;
    const tile::Sizes sizes = sizes_of_chunk(plan);
    double bytes = 0;
    std::set<std::string> seen;  // the same rows, one token earlier, lie in a cache
    for (const ir::Op& op : fn.ops) {
        if (op.code != ir::Opcode::Param) continue;
        const std::string& name = op.attrs.name;
        const bool input = op.attrs.role == Role::Input || op.attrs.role == Role::Shifted;
        if (input && seen.insert(name).second)
            bytes += bytes_of(plan, plan::TensorSlot::Kind::Input, name, elements(op.type, sizes));
        if (op.attrs.role == Role::Spill) bytes += bytes_of_spill(plan, name);
    }
    for (const ir::Result& r : fn.results) {
        if (r.role == Role::Input)
            bytes += bytes_of(plan, plan::TensorSlot::Kind::Output, r.name, elements(fn.op(r.value).type, sizes));
        if (r.role == Role::Spill) bytes += bytes_of_spill(plan, r.name);
        if (r.role == Role::Before) bytes += elements(fn.op(r.value).type, sizes) * sizeof(float);
    }
    return bytes;
}

double bytes_of_hops(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem) {
    return bytes_per_hop(plan, kernel) * bodies(kernel, extent(plan, kernel, problem));
}

double elementwise_operations(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem) {
    return elementwise_of(kernel.graph.fn, plan.schedule.held(sizes_of_chunk(plan))) *
           bodies(kernel, extent(plan, kernel, problem));
}

double state_bytes(const plan::Plan& plan) {
    double bytes = 0;
    for (const plan::TensorSlot& slot : plan.tensors)
        if (slot.kind == plan::TensorSlot::Kind::FinalState) bytes += elements(slot.type, plan.sizes) * sizeof(float);
    return bytes;
}

CallCost counted(const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu) {
    const GpuPeaks peaks = peaks_of(gpu);
    CallCost cost;
    cost.name = plan.definition.name, cost.device = gpu.name;
    cost.schedule = plan::to_string(plan.schedule), cost.engine = plan::to_string(plan.schedule.engine);
    cost.tokens = problem.tokens, cost.sequences = problem.sequences, cost.heads = problem.heads;
    for (const plan::Kernel& kernel : plan.kernels) {
        cost.kernels.push_back(count_kernel(plan, kernel, problem, peaks));
        const StageCost& k = cost.kernels.back();
        cost.flops += k.flops, cost.elementwise += k.elementwise, cost.bytes += k.bytes, cost.seconds += k.seconds;
    }
    cost.state_bytes = state_bytes(plan);
    const double lanes = static_cast<double>(problem.sequences * problem.heads);
    cost.floor_bytes = token_bytes(plan, problem) + 2 * cost.state_bytes * lanes;
    cost.workspace_bytes = spill_bytes(plan, problem);
    cost.beside = plan.schedule.beside_groups > 0;
    cost.roofline_seconds = std::max(cost.floor_bytes / peaks.memory, cost.flops / peaks.matrix);
    return cost;
}

void find_bounds(CallCost& cost) {
    const StageCost* most = nullptr;
    double inside = 0;
    for (StageCost& k : cost.kernels) {
        const double launch =
            k.seconds - std::max({k.memory_seconds, k.matrix_seconds, k.arithmetic_seconds, k.latency_seconds});
        k.bound = longest(k.memory_seconds, k.matrix_seconds, k.arithmetic_seconds, k.latency_seconds, launch);
        inside += k.seconds;
        if (!most || k.seconds > most->seconds) most = &k;
    }
    if (!most) return;
    cost.tasks = most->tasks;
    cost.bound = cost.seconds > 2 * inside ? Bound::Launch : most->bound;
}

CallCost cost_on_gpu(const plan::Plan& plan, const Problem& problem, const GpuFacts& gpu) {
    CallCost cost = counted(plan, problem, gpu);
    switch (plan.schedule.engine) {
        case plan::Engine::WarpGroups:
        case plan::Engine::Warps:
            predict_warp_groups(cost, plan, problem, gpu);
            break;
        case plan::Engine::Channels:
            predict_channels(cost, plan);
            break;
        case plan::Engine::Tiles:
            predict_tiles(cost, plan, gpu);
            break;
    }
    find_bounds(cost);
    return cost;
}

}  // namespace forge::target
