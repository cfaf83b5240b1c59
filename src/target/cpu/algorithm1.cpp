#include "target/cpu/algorithm1.h"

#include <algorithm>

#include "support/divide.h"

namespace forge::target {
namespace {

// d_k d_v elements that a chunk's state moves, in units of states: decoupled writes a contribution, reads and rewrites
// it on the way, and reads it for the outputs; fused saves one of these.
constexpr double kDecoupledStates = 5, kFusedStates = 4;

using support::divide_up;

}  // namespace

Algorithm1 algorithm1(const Algorithm1Inputs& in) {
    Algorithm1 out;
    out.chunks = divide_up(in.tokens, in.chunk);
    out.state_tiles = divide_up(in.key_size, in.key_tile) * divide_up(in.value_size, in.value_tile);
    out.decoupled_tasks = in.batch * in.heads * out.chunks * out.state_tiles;
    out.fused_tasks = in.batch * in.heads * out.state_tiles;

    const auto tokens = static_cast<double>(2 * in.chunk * (in.key_size + in.value_size)),
               state = static_cast<double>(in.key_size * in.value_size);
    const auto element = static_cast<double>(in.element_bytes);
    out.decoupled_bytes = (tokens + kDecoupledStates * state) * element;
    out.fused_bytes = (tokens + kFusedStates * state) * element;

    const auto seconds = [&](double bytes, std::int64_t tasks) {
        const auto at_once = static_cast<double>(std::clamp<std::int64_t>(tasks, 1, in.most_tasks));
        return bytes / (in.bandwidth * at_once) + in.compute_s / at_once;
    };
    out.decoupled_s = seconds(out.decoupled_bytes, out.decoupled_tasks);
    out.fused_s = seconds(out.fused_bytes, out.fused_tasks);
    out.saturated = out.fused_tasks >= in.enough_tasks;
    out.strategy = out.saturated || out.fused_s <= out.decoupled_s ? plan::Strategy::Fused : plan::Strategy::Decoupled;
    return out;
}

}  // namespace forge::target
