// The kernel of channels that adds up, over all tiles of a sequence, what their tokens add to a gradient
// (graph::adds_up).
#include "emit/cuda/channel_walks.h"
#include "emit/cuda/channels.h"
#include "emit/kernel.h"
#include "graph/token_kernels.h"
#include "graph/token_program.h"

namespace forge::emit {

void write_channel_sums(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel) {
    using Slot = plan::TensorSlot::Kind;
    const bool heads = channels_are_heads(plan.definition);
    const std::int64_t rows = state_rows(plan);
    out.begin_kernel({kernel_symbol(kernel)},
                     fmt::format("FORGE_KERNEL void {}(const __grid_constant__ Call call)", kernel_symbol(kernel)));
    out.next({::forge::kernel::Kind::Compute, "sums", {}, {}});
    out.line("float* const scratch = static_cast<float*>(ptx::block_memory());");
    out.line("const Task at = scan_task(call, blockIdx.x);");
    for (const ir::Result& r : kernel.tiles.fn.results) {
        const ir::Type& type = kernel.tiles.fn.op(r.value).type;
        const int left = plan.spill(graph::sum_spill(r.name));
        const std::int64_t floats = plan.spills[static_cast<std::size_t>(left)].floats;
        const std::string rest =
            fmt::format("{}, {}, {}, {}", floats, heads ? 1 : channels_of(plan),
                        plan.tensor(Slot::InitialState, r.name), plan.tensor(Slot::FinalState, r.name));
        if (graph::has_rows(type))
            out.line(
                "sum_tiles<false>(scratch, call, at, call.spills[{}] + at.tile * {}, {}, "
                "static_cast<int>(at.tile));",
                left, floats / rows, rest);
        else
            out.line("{}sum_tiles<{}>(scratch, call, at, call.spills[{}], {});", rows ? "if (at.tile == 0) " : "",
                     !heads && type.rank() == 0, left, rest);
    }
    out.end();
}

}  // namespace forge::emit
