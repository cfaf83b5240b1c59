#include "emit/cuda/launch.h"

#include <algorithm>

#include "emit/cuda/channels.h"
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

Launch launch_of_tiles(const plan::Plan& plan, const plan::Kernel& kernel) {
    const std::int64_t slack = has_partial_vectors(kernel.tiles.fn) ? kSlackFloats : 0;
    Launch launch;
    launch.threads = plan.schedule.block_threads;
    launch.shared_bytes = (kernel.tiles.scratch_floats + slack) * static_cast<std::int64_t>(sizeof(float));
    launch.parts = plan.tiles(kernel);
    return launch;
}

}  // namespace

Launch launch_of(const plan::Plan& plan, const plan::Kernel& kernel) {
    switch (kernel.engine) {
        case plan::Engine::Tiles:
        case plan::Engine::WarpGroups: return launch_of_tiles(plan, kernel);
        case plan::Engine::Channels: return launch_of_channels(plan, kernel);
    }
    throw InternalError("launch: unknown engine");
}

}  // namespace forge::emit
