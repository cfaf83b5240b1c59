#include "target/cpu/cost.h"

#include <algorithm>
#include <cmath>

#include "forge/error.h"
#include "support/divide.h"

namespace forge::target {
namespace {

using support::divide_up;

/// What vector operations take of their full time when a body's tiles fill `bytes`: 0.6 within half of the nearest
/// cache (measured on elementwise kernels), all of it from four times that cache on.
double nearness(double bytes, const Device& d) {
    if (d.near_bytes == 0) return 1;
    constexpr double kLeast = 0.6, kDoublings = 3;
    const double doublings = std::log2(bytes / (static_cast<double>(d.near_bytes) / 2));
    return kLeast + (1 - kLeast) * std::clamp(doublings / kDoublings, 0.0, 1.0);
}

/// Floats of tiles that a body touches: row loops leave the tiles of their tensors alone.
std::int64_t touched_floats(const plan::Plan& plan, const tile::TileKernel& tiles) {
    std::int64_t floats = tiles.scratch_floats;
    for (const tile::Stream& s : tiles.streams)
        for (const auto* side : {&s.inputs, &s.outputs})
            for (const ir::ValueId v : *side) floats -= tile::tile_floats(tiles.fn.op(v).type, plan.schedule.rules());
    return std::max<std::int64_t>(1, floats);
}

/// How fast pieces of memory of this size move, beside rows of 512 bytes: each one costs as much as 256 bytes more
/// would (measured on row loops over 256 to 2048 bytes).
double piece_speed(double bytes, double pieces, const Device& d) {
    if (d.piece_bytes == 0 || bytes == 0) return 1;
    constexpr double kUsual = 512;
    return (1 + d.piece_bytes / kUsual) / (1 + d.piece_bytes * pieces / bytes);
}

/// Seconds of arithmetic in one run of the body.
double body_seconds(const Work& w, std::int64_t floats, const Device& d) {
    const double near = nearness(static_cast<double>(floats) * sizeof(float), d);
    return w.product_flops / (d.product_flops * d.product_efficiency) + w.calls * d.call_s +
           near * (w.vectors * d.vector_s + w.exps * d.exp_s) + d.hop_s;
}

/// How often each kernel is started.
std::int64_t stretches(const plan::Plan& plan, const Problem& problem) {
    const std::int64_t chunks = divide_up(problem.tokens, plan.schedule.chunk);
    return plan.in_stretches() ? divide_up(chunks, plan.stretch_chunks(problem.sequences * problem.heads)) : 1;
}

/// `resident`: whether everything that the call touches stays in the last cache.
KernelCost price_kernel(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem, const Device& d,
                        bool resident) {
    const Work w = work_of(plan, kernel);
    const Extent e = extent(plan, kernel, problem);
    const auto tasks = static_cast<double>(e.tasks), bodies = tasks * static_cast<double>(e.hops),
               tiles = static_cast<double>(kernel.parts());
    KernelCost c;
    c.name = kernel.graph.name;
    c.tasks = e.tasks;
    c.hops = e.hops;
    c.flops = w.useful_flops * bodies;
    const double again = w.shared_bytes * bodies * (1 - 1 / tiles);
    c.again_bytes = again + w.passed_bytes * bodies;
    c.bytes = (w.input_bytes + w.output_bytes + w.spill_read_bytes + w.spill_write_bytes) * bodies - again +
              w.state_bytes * tasks;

    // The last wave may leave slots idle; that counts fully, as tasks are long.
    const double waves = std::ceil(tasks / d.slots), busy = std::min<double>(tasks, d.slots);
    c.compute_s = waves * static_cast<double>(e.hops) * body_seconds(w, touched_floats(plan, kernel.tiles), d);
    const double share = busy / d.slots;
    const double memory = resident ? d.cache_bandwidth * share : std::min(d.memory_bandwidth, busy * d.slot_bandwidth);
    const double even = waves * busy / tasks;  // the fullest slot moves its tasks' bytes at its own pace
    const double token_bytes = w.input_bytes + w.output_bytes, fresh_bytes = token_bytes * bodies - again;
    const double piece = resident ? 1 : piece_speed(token_bytes, w.token_rows, d);
    c.move_s = even * (c.bytes + fresh_bytes * (1 / piece - 1)) / memory + c.again_bytes / (d.cache_bandwidth * share);
    c.wait_s = d.launch_s * static_cast<double>(stretches(plan, problem));
    constexpr double kStreamed = 0.9;  // of the shorter of moving and computing, what row loops hide
    const double apart = (1 - d.overlap) * (1 - (token_bytes > 0 ? kStreamed * w.streamed_bytes / token_bytes : 0));
    c.seconds = std::max(c.compute_s, c.move_s) + apart * std::min(c.compute_s, c.move_s) + c.wait_s;
    return c;
}

}  // namespace

Extent extent(const plan::Plan& plan, const plan::Kernel& kernel, const Problem& problem) {
    const std::int64_t chunks = std::max<std::int64_t>(1, divide_up(problem.tokens, plan.schedule.chunk));
    const std::int64_t chunks_per_segment = divide_up(chunks, std::max<std::int64_t>(1, plan.schedule.segments));
    const std::int64_t segments = divide_up(chunks, chunks_per_segment);
    const std::int64_t lanes =
        std::max<std::int64_t>(1, problem.sequences) * std::max<std::int64_t>(1, problem.heads) * kernel.parts();
    switch (kernel.graph.loop) {
        case plan::Loop::Scan:
            return {lanes, chunks};
        case plan::Loop::Chunks:
            return {lanes * chunks, 1};
        case plan::Loop::Summaries:
            return {lanes * std::max<std::int64_t>(1, segments - 1), chunks_per_segment};  // nothing follows the last
        case plan::Loop::Segments:
        case plan::Loop::Relay:
            return {lanes * segments, chunks_per_segment};
        case plan::Loop::Carries:
            return {lanes, segments};
    }
    throw InternalError("cost: unknown loop");
}

double token_bytes(const plan::Plan& plan, const Problem& problem) {
    double bytes = 0;
    tile::Sizes sizes = plan.sizes;
    for (const plan::TensorSlot& slot : plan.tensors) {
        const bool token = slot.kind == plan::TensorSlot::Kind::Input || slot.kind == plan::TensorSlot::Kind::Output;
        if (!token) continue;
        double row =
            static_cast<double>(slot.type.shape[0].factor) * static_cast<double>(size_in_bytes(slot.type.dtype));
        for (std::size_t axis = 2; axis < slot.type.shape.size(); ++axis) {
            const Dim& d = slot.type.shape[axis];
            row *= static_cast<double>(d.factor * (d.is_constant() ? 1 : sizes.at(d.symbol)));
        }
        bytes += row;
    }
    return bytes * static_cast<double>(problem.tokens * problem.sequences * problem.heads);
}

double spill_bytes(const plan::Plan& plan, const Problem& problem) {
    const std::int64_t lanes = problem.sequences * problem.heads,
                       chunks = std::max<std::int64_t>(1, divide_up(problem.tokens, plan.schedule.chunk)),
                       held = plan.in_stretches() ? std::min(chunks, plan.stretch_chunks(lanes)) : chunks;
    double bytes = 0;
    for (const plan::SpillSlot& slot : plan.spills) {
        std::int64_t blocks = held;
        if (slot.per == plan::SpillSlot::Per::Segment) blocks = plan.schedule.segments;
        if (slot.per == plan::SpillSlot::Per::Sequence) blocks = held < chunks ? 1 : 0;
        bytes += static_cast<double>(blocks * slot.floats) * sizeof(float);
    }
    return bytes * static_cast<double>(lanes);
}

Cost price(const plan::Plan& plan, const Problem& problem, const Device& device) {
    Cost total;
    total.spill_bytes = spill_bytes(plan, problem);
    const bool resident = token_bytes(plan, problem) + total.spill_bytes < static_cast<double>(device.cache_bytes);
    double longest = 0;
    for (const plan::Kernel& kernel : plan.kernels) {
        const KernelCost c = price_kernel(plan, kernel, problem, device, resident);
        total.bytes += c.bytes;
        total.again_bytes += c.again_bytes;
        total.flops += c.flops;
        total.compute_s += c.compute_s;
        total.move_s += c.move_s;
        total.wait_s += c.wait_s;
        total.seconds += c.seconds;
        if (c.seconds > longest) longest = c.seconds, total.tasks = c.tasks;
        total.hops += c.hops;
        if (device.on_chip_is_limit &&
            kernel.tiles.scratch_floats * static_cast<std::int64_t>(sizeof(float)) > device.on_chip_bytes)
            total.fits = false;
        total.kernels.push_back(c);
    }
    return total;
}

Floor floor_of(const plan::Plan& plan, const Problem& problem, const Device& device) {
    Floor floor;
    floor.bytes = token_bytes(plan, problem);
    tile::Sizes sizes = plan.sizes;
    sizes[ir::kChunkSymbol] = plan.schedule.chunk;
    const double per_chunk = plan::useful_flops(tile::lower(plan.program, sizes, sizes, plan.schedule.rules()).fn);
    floor.flops = per_chunk * static_cast<double>(problem.tokens * problem.sequences * problem.heads) /
                  static_cast<double>(plan.schedule.chunk);
    const bool resident = floor.bytes < static_cast<double>(device.cache_bytes);
    floor.memory_s = floor.bytes / (resident ? device.cache_bandwidth : device.memory_bandwidth);
    floor.compute_s = floor.flops / (device.product_flops * device.slots);
    return floor;
}

}  // namespace forge::target
