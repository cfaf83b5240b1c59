#include "runtime/callable.h"

#include <algorithm>

#include "support/checked.h"

namespace forge::runtime {

std::string TensorOfCall::argument() const {
    if (kind == TensorKind::InitialState) return "initial_states." + name;
    if (kind == TensorKind::FinalState) return "final_states." + name;
    if (kind == TensorKind::ChunkState) return "chunk_states." + name;
    return name;
}

std::size_t kernels_of_summaries(const Callable& callable) {
    std::size_t count = 0;
    for (std::size_t k = 0; k < callable.kernels.size(); ++k)
        if (callable.kernels[k].loop == Loop::Summaries) count = k + 1;
    return count;
}

std::int64_t stretch_chunks(std::int64_t stretch_bytes, std::int64_t bytes_per_chunk, std::int64_t lanes) {
    constexpr std::int64_t kFewest = 16;  // else threads would wait for each other more than they work
    const std::int64_t bytes = (support::Checked(lanes) * bytes_per_chunk).saturated();
    return std::max(kFewest, stretch_bytes / std::max<std::int64_t>(1, bytes));
}

std::int64_t stretch_chunks(const Callable& callable, std::int64_t lanes) {
    std::int64_t bytes = 0;
    for (const Spill& spill : callable.spills)
        if (spill.per == Per::Chunk) bytes += spill.floats * static_cast<std::int64_t>(sizeof(float));
    return stretch_chunks(callable.stretch_bytes, bytes, lanes);
}

}  // namespace forge::runtime
