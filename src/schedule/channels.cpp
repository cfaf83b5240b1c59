#include "schedule/channels.h"

#include "graph/token_program.h"

namespace forge::schedule {
namespace {

constexpr int kFewThreads = 256, kManyThreads = 512;
constexpr std::int64_t kManyTokens = 4096;

/// Sequences × heads × parts of the channels.
std::int64_t tasks_of(const ir::Definition& definition, const tile::Sizes& sizes, const FitWishes& wishes) {
    const std::int64_t channels = sizes.at(definition.states[0].type.shape[0].symbol);
    return wishes.expected_tasks * ((channels + kTaskChannels - 1) / kTaskChannels);
}

}  // namespace

plan::Schedule fit_channels(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                            const FitWishes& wishes, int threads, int multiprocessors) {
    static_cast<void>(graph::token_program(program));  // it refuses
    if (!definition.step) refuse(Reason::NoStep);
    if (definition.fixed_chunk != 0) refuse(Reason::FixedChunk, definition.fixed_chunk);
    if (const plan::Strategy asked = wishes.strategy.value_or(plan::Strategy::OnePass);
        asked != plan::Strategy::OnePass)
        refuse(Reason::OtherStrategy, plan::to_string(asked));
    if (wishes.tiles > 1) refuse(Reason::OtherTiles, wishes.tiles);
    plan::Schedule s;
    if (wishes.chunk) s.chunk = wishes.chunk;
    s.vector_width = 4;
    s.shared_memory = true;
    s.engine = plan::Engine::Channels;
    // Few tasks of long sequences would leave multiprocessors idle, that share them without end through the workspace.
    s.clusters = multiprocessors > 0 &&
                 std::int64_t{2} * kClusterBlocks * tasks_of(definition, sizes, wishes) >= multiprocessors;
    // The more threads, the fewer rounds of a cluster, as long as there are tokens for all of its blocks.
    s.block_threads = threads                                               ? threads
                      : s.clusters && wishes.expected_tokens >= kManyTokens ? kManyThreads
                                                                            : kFewThreads;
    return s;
}

}  // namespace forge::schedule
