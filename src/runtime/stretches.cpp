#include "runtime/stretches.h"

#include "support/checked.h"

namespace forge::runtime {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Stretch stretch(const Bound& bound, std::int64_t chunk, std::int64_t row, std::int64_t end) {
    Stretch s{row, end, {}, {}, {}};
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        const std::int64_t tokens = std::min<std::int64_t>(bound.tokens[static_cast<std::size_t>(n)], end) - row;
        s.first_chunk.push_back(static_cast<device::Size>(s.chunk_sequence.size()));
        if (row > 0 && tokens <= 0) continue;
        s.sequences.push_back(static_cast<int>(n));
        s.chunk_sequence.insert(s.chunk_sequence.end(), static_cast<std::size_t>(divide_up(tokens, chunk)),
                                static_cast<int>(n));
    }
    return s;
}

}  // namespace

std::vector<Stretch> stretches_of(const plan::Plan& plan, const Bound& bound) {
    const std::int64_t chunk = plan.schedule.chunk;
    std::int64_t chunks = 1;  // of the longest sequence
    for (const device::Size tokens : bound.tokens) chunks = std::max<std::int64_t>(chunks, divide_up(tokens, chunk));
    const std::int64_t count =
        plan.in_stretches() ? divide_up(chunks, plan.stretch_chunks(bound.sequences * bound.heads)) : 1;
    const std::int64_t rows = divide_up(chunks, count) * chunk;  // all of one length
    std::vector<Stretch> found;
    for (std::int64_t row = 0; row < chunks * chunk; row += rows)
        found.push_back(stretch(bound, chunk, row, row + rows));
    return found;
}

std::int64_t spill_blocks(const plan::Plan& plan, const plan::SpillSlot& spill, const Bound& bound) {
    using Per = plan::SpillSlot::Per;
    const std::int64_t lanes = (support::Checked(bound.sequences) * bound.heads).saturated(),
                       whole = (support::Checked(bound.chunks) * bound.heads).saturated();
    switch (spill.per) {
        case Per::Segment:
            return (support::Checked(bound.segments) * bound.heads).saturated();
        case Per::Sequence:
            return divide_up(bound.length, plan.schedule.chunk) > plan.stretch_chunks(lanes) ? lanes
                                                                                             : 0;  // no stretch follows
        case Per::Worker:
            return 0;  // of GPUs
        case Per::Chunk:
            break;
    }
    return plan.in_stretches()
               ? std::min(whole, std::max((support::Checked(lanes) * plan.stretch_chunks(lanes)).saturated(),
                                          plan.stretch_chunks(1)))
               : whole;
}

}  // namespace forge::runtime
