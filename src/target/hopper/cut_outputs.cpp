#include "target/hopper/cut_outputs.h"

#include <algorithm>
#include <vector>

#include "tile/fragments.h"

namespace forge::target {

using ir::Opcode;
using plan::Schedule;
using tile::kBlock;

std::int64_t bytes_of_tiles(const plan::Kernel& kernel) {
    return kernel.tiles.scratch_floats * static_cast<std::int64_t>(sizeof(float));
}

namespace {

/// The kernels of single chunks that come after scans: of outputs, the joint one first if there are two.
std::vector<const plan::Kernel*> outputs_of(const plan::Plan& plan) {
    std::vector<const plan::Kernel*> found;
    const bool back = std::any_of(plan.kernels.begin(), plan.kernels.end(),
                                  [](const plan::Kernel& kernel) { return kernel.graph.reverse; });
    bool scanned = false;
    for (const plan::Kernel& kernel : plan.kernels) {
        const bool scans = plan::in_order(kernel.graph.loop);
        scanned = scanned || (scans && kernel.graph.reverse == back);
        if (scanned && !scans) found.push_back(&kernel);
    }
    return found;
}

/// Whether a kernel of outputs holds, or computes, so much that it had better be cut: it would not fit, or channels
/// decay by themselves, of which each has long text. Heads of 128 numbers with fewer matrices spill little.
bool does_much(const plan::Kernel& outputs, const SharedMemory& memory) {
    return bytes_of_tiles(outputs) > memory.bytes ||
           std::any_of(outputs.tiles.fn.ops.begin(), outputs.tiles.fn.ops.end(),
                       [](const ir::Op& op) { return op.code == Opcode::DecayApply; });
}

/// Whether running sums would be of fewer digits if a kernel took its matrices from the one before it: an image has 16
/// bits of each number, which is all that products take of it, and enough for what is added to an output. What decays
/// multiply passes whole. A gate's gradient is a running sum of differences, and small where the gate forgets.
bool sums_rounded(const plan::Kernel& before, const plan::Kernel& kernel, const tile::Sizes& held) {
    const ir::Function& fn = kernel.graph.fn;
    const auto users = ir::users_of(fn);
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        const bool passes = op.code == Opcode::Param && op.attrs.role == ir::Role::Spill &&
                            before.graph.fn.result(op.attrs.name, ir::Role::Spill) != ir::kNoValue;
        if (!passes || !tile::is_block_matrix(tile::with_sizes(op.type, held))) continue;
        const auto takes_all = [&](ir::ValueId u) {
            const ir::Op& user = fn.op(u);
            if (user.code == Opcode::DecayApply) return user.args[0] == v;
            return ir::is_matmul(user.code) && (user.args.size() < 3 || user.args[2] != v);
        };
        const auto& readers = users[static_cast<std::size_t>(v)];
        if (std::all_of(readers.begin(), readers.end(), takes_all)) continue;
        const std::vector<bool> follows = ir::depends_on(fn, {v});
        for (ir::ValueId u = 0; u < fn.size(); ++u)
            if (follows[static_cast<std::size_t>(u)] && fn.op(u).code == Opcode::Cumsum) return true;
    }
    return false;
}

}  // namespace

std::optional<Schedule> with_cut_outputs(Schedule s, const tile::Sizes& held, const SharedMemory& memory,
                                         const MakePlan& make_plan) {
    constexpr double kMostInCommon = 0.75;
    tile::Sizes whole_sizes = held;
    whole_sizes[ir::kChunkSymbol] = s.chunk;
    const plan::Plan whole = make_plan(s.without_far_tiles());
    const auto outputs = outputs_of(whole);
    if (outputs.empty() || outputs[0]->graph.tiled || !does_much(*outputs[0], memory)) return std::nullopt;
    for (const auto& [axis, size] : held) {
        const bool is_long = size > kBlock && size % kBlock == 0;
        if (!is_long || axis == ir::kChunkSymbol || axis == s.tile_axis || !plan::cuts_outputs(whole.program, axis))
            continue;
        s.outputs_axis = axis;
        const plan::Plan cut = make_plan(s);
        const auto kernels = outputs_of(cut);
        if (!kernels.back()->graph.own_axis.empty() && kernels.size() == 1) return s;  // they have nothing in common
        if (kernels.size() < 2 || sums_rounded(*kernels[0], *kernels[1], whole_sizes)) continue;
        const double all = plan::useful_flops(outputs[0]->tiles.fn), common = plan::useful_flops(kernels[0]->tiles.fn);
        if (common <= kMostInCommon * all) return s;
    }
    return std::nullopt;
}

}  // namespace forge::target
