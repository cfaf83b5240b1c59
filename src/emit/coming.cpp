#include "emit/coming.h"

#include <algorithm>

#include "tile/held.h"
#include "tile/lower.h"

namespace forge::emit {
namespace {

/// A vector that is gathered from a row whose length is no multiple of it may reach past the last tile.
constexpr std::int64_t kSlackFloats = 1024;

bool has_partial_vectors(const ir::Function& fn) {
    return std::any_of(fn.ops.begin(), fn.ops.end(), [](const ir::Op& op) {
        return std::any_of(op.type.shape.begin(), op.type.shape.end(),
                           [](const Dim& d) { return d.factor > 1 && d.factor % 4 != 0; });
    });
}

}  // namespace

std::int64_t floats_of_tiles(const plan::Kernel& kernel) {
    const std::int64_t slack = has_partial_vectors(kernel.tiles.fn) ? kSlackFloats : 0;
    return kernel.tiles.scratch_floats + slack;
}

std::int64_t coming_floats(const plan::Plan& plan, const ir::Type& state) {
    const int threads = plan.schedule.block_threads;
    return tile::held_floats(tile::size_of(state, 0), tile::size_of(state, 1), threads) * threads *
           static_cast<std::int64_t>(size_in_bytes(plan.state_dtype)) / static_cast<std::int64_t>(sizeof(float));
}

std::int64_t coming_floats(const plan::Plan& plan) {
    std::int64_t floats = 0;
    if (!plan.schedule.states_ahead) return floats;
    for (const ir::Op& op : plan.kernels.front().tiles.fn.ops)
        if (op.code == ir::Opcode::Param && op.attrs.role == ir::Role::State && op.layout &&
            op.layout->space == ir::Layout::Space::Held)
            floats += coming_floats(plan, op.type);
    return floats;
}

}  // namespace forge::emit
