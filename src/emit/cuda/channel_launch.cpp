#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/channels/sizes.h"
#include "emit/cuda/channel_walks.h"
#include "emit/cuda/channels.h"
#include "emit/names.h"
#include "graph/token_program.h"
#include "support/divide.h"

namespace forge::emit {

using cuda::kMapBytes, cuda::kMostBlocks;

namespace {

/// So that each has 128 registers or, where gradients of matrices are made, 255.
int threads_of_multiprocessor(const plan::Plan& plan) {
    const bool back =
        std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const plan::Kernel& k) { return k.graph.reverse; });
    return back && state_rows(plan) > 0 ? kMostThreadsOfMatricesBack : 512;
}

}  // namespace

Launch launch_of_channels(const plan::Plan& plan, const plan::Kernel& kernel) {
    const auto states = static_cast<std::int64_t>(states_of(kernel.tiles.fn).size());
    const std::int64_t rows_of_states = std::max<std::int64_t>(state_rows(plan), 1);  // joined one after another
    const auto tensors = static_cast<std::int64_t>(token_tensors(plan, kernel.tiles.fn).size()),
               sums = static_cast<std::int64_t>(contributions_of(kernel.tiles.fn).size());
    const int wide = tile_channels(plan), strips = plan.schedule.block_threads / (wide / kChannelWidth);
    Launch launch;
    launch.threads = plan.schedule.block_threads;
    launch.parts = 1;
    if (is_sums(kernel)) {
        launch.parts = static_cast<int>(std::max<std::int64_t>(state_rows(plan), 1));
        launch.shared_bytes = launch.threads * static_cast<std::int64_t>(sizeof(float));
        return launch;
    }
    if (channels_are_heads(plan.definition)) launch.head_channels = wide;
    else launch.parts = support::divide_up(channels_of(plan), std::int64_t{wide});
    launch.resident_blocks = std::max(1, threads_of_multiprocessor(plan) / launch.threads);
    const std::int64_t rows = static_cast<std::int64_t>(rows_of(plan)) * strips;
    constexpr std::int64_t kTileBytes = 160;
    const std::int64_t maps = states * wide * kMapBytes;  // one per channel and state
    launch.shared_bytes =
        cuda::kPlaces * ((kTileBytes + 8 * tensors + 15) / 16 * 16) + maps / 2 + strips * (maps + sums * wide * 4);
    if (plan.schedule.clusters) {
        launch.cluster_blocks = kMostBlocks, launch.cluster_rows = rows;
        launch.shared_bytes += 2 * kMostBlocks * maps + rows_of_states * maps / 2 + 2 * cuda::kMailboxBytes;
        return launch;
    }
    launch.unit_rows = rows;
    launch.exchange_header_bytes = cuda::kExchangeHeader;
    launch.exchange_bytes = rows_of_states * states * wide * cuda::kWordBytes;
    launch.shared_bytes += (cuda::kGroup - 1) * maps;
    return launch;
}

void write_channel_head(Writer& out, const plan::Plan& plan) {
    const Launch how = launch_of_channels(plan, plan.kernels[0]);
    out.line("#define {}", define_of_call(plan));
    out.line("#define FORGE_THREADS {}", how.threads);
    out.line("#define FORGE_ROWS {}", rows_of(plan));
    out.line("#define FORGE_RESIDENT {}", how.resident_blocks);
    if (channels_are_heads(plan.definition)) out.line("#define FORGE_HEAD_CHANNELS");
    if (const int wide = tile_channels(plan); wide != cuda::kTileChannels)
        out.line("#define FORGE_TILE_CHANNELS {}", wide);
    const auto& inputs = plan.definition.inputs;
    const auto half = [](const ir::InputDecl& in) { return is_half(in.type.dtype); };
    if (std::any_of(inputs.begin(), inputs.end(), half)) out.line("#define FORGE_FAST_EXP");
    out.line("#include \"cuda/channels/kernel.h\"");
    out.line("#include \"cuda/channels/{}.h\"", plan.schedule.clusters ? "clusters" : "look_back");
    const auto meet = [](const plan::Kernel& k) { return !is_sums(k) && graph::mixes_channels(k.tiles.fn); };
    if (std::any_of(plan.kernels.begin(), plan.kernels.end(), is_sums))
        out.line("#include \"cuda/channels/tile_sums.h\"");
    if (std::any_of(plan.kernels.begin(), plan.kernels.end(), meet)) out.line("#include \"cuda/channels/sums.h\"");
    if (!plan.last_rows.empty()) out.line("#include \"cuda/portable/last_rows.h\"");
    out.put("");
    out.line("using namespace forge::cuda;");
}

}  // namespace forge::emit
