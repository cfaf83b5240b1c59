#include "emit/cuda/emit_cuda.h"

#include <algorithm>

#include "forge/error.h"

namespace forge::emit {
namespace {

/// A vector that is gathered from a row whose length is no multiple of it may reach past the last tile.
constexpr std::int64_t kSlackFloats = 1024;

bool has_partial_vectors(const ir::Function& fn) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return std::any_of(op.type.shape.begin(), op.type.shape.end(), [](const Dim& d) { return d.factor > 1 && d.factor % 4 != 0; });
    });
}

}  // namespace

std::size_t shared_bytes(const plan::Kernel& kernel) {
    const std::int64_t slack = has_partial_vectors(kernel.tiles.fn) ? kSlackFloats : 0;
    return static_cast<std::size_t>(kernel.tiles.scratch_floats + slack) * sizeof(float);
}

std::string emit_cuda(const plan::Plan& plan) {
    if (!plan.schedule.shared_memory) throw InternalError("emit: the plan's tiles are not laid out for shared memory");
    Dialect cuda;
    cuda.defines = {fmt::format("FORGE_THREADS {}", plan.schedule.block_threads)};
    const bool warp_groups = plan.schedule.warp_groups;
    cuda.includes = {warp_groups ? "cuda/warpgroup/kernel.h" : "cuda/portable/kernel.h"};
    if (warp_groups) cuda.defines.emplace_back("FORGE_FAST_EXP"), cuda.barrier = "publish();";
    cuda.namespaces = {"forge::cuda"};
    cuda.arguments = "const __grid_constant__ Call call";
    cuda.prologue = {fmt::format("extern __shared__ __align__({}) float scratch[];", warp_groups ? 1024 : 16), "const Size task = blockIdx.x;"};
    cuda.idle = "if (at.idle) return;";
    cuda.cooperative = true;
    cuda.threads = plan.schedule.block_threads;
    return write_source(plan, cuda);
}

}  // namespace forge::emit
