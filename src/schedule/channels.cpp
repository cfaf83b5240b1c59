#include "schedule/channels.h"

#include "graph/token_program.h"

namespace forge::schedule {

std::optional<plan::Schedule> fit_channels(const ir::Definition& definition, const ir::Function& program, const FitWishes& wishes, int threads) {
    // Without a step, the size of the chunks may be part of the definition's meaning.
    if (!definition.step || wishes.strategy.value_or(plan::Strategy::OnePass) != plan::Strategy::OnePass) return std::nullopt;
    if (!graph::token_program(program)) return std::nullopt;
    plan::Schedule s;
    if (wishes.chunk) s.chunk = wishes.chunk;
    s.vector_width = 4;
    s.shared_memory = true;
    s.block_threads = threads;
    s.engine = plan::Engine::Channels;
    return s;
}

}  // namespace forge::schedule
