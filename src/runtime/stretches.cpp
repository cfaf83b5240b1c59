#include "runtime/stretches.h"

#include "support/checked.h"

namespace forge::runtime {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Stretches::Stretches(const Callable& callable, const Bound& bound)
    : bound_(bound), chunk_(callable.chunk), stretch_(bound.memory()) {
    std::int64_t chunks = 1;  // of the longest sequence
    for (const device::Size tokens : bound.tokens) chunks = std::max<std::int64_t>(chunks, divide_up(tokens, chunk_));
    const std::int64_t count =
        callable.in_stretches ? divide_up(chunks, stretch_chunks(callable, bound.sequences * bound.heads)) : 1;
    rows_ = divide_up(chunks, count) * chunk_;  // all of one length
    end_ = chunks * chunk_;
    stretch_.sequences.reserve(bound.tokens.size()), stretch_.first_chunk.reserve(bound.tokens.size());
    stretch_.chunk_sequence.reserve(static_cast<std::size_t>(bound.chunks));
}

const Stretch* Stretches::next() {
    if (row_ >= end_) return nullptr;
    stretch_.row = row_, stretch_.end = row_ + rows_;
    stretch_.sequences.clear(), stretch_.first_chunk.clear(), stretch_.chunk_sequence.clear();
    for (std::size_t n = 0; n < bound_.tokens.size(); ++n) {
        const std::int64_t tokens = std::min<std::int64_t>(bound_.tokens[n], stretch_.end) - row_;
        stretch_.first_chunk.push_back(static_cast<device::Size>(stretch_.chunk_sequence.size()));
        if (row_ > 0 && tokens <= 0) continue;
        stretch_.sequences.push_back(static_cast<int>(n));
        stretch_.chunk_sequence.insert(stretch_.chunk_sequence.end(),
                                       static_cast<std::size_t>(divide_up(tokens, chunk_)), static_cast<int>(n));
    }
    row_ += rows_;
    return &stretch_;
}

std::int64_t spill_blocks(const Callable& callable, const Spill& spill, const Bound& bound) {
    const std::int64_t lanes = (support::Checked(bound.sequences) * bound.heads).saturated(),
                       whole = (support::Checked(bound.chunks) * bound.heads).saturated();
    switch (spill.per) {
        case Per::Segment:
            return (support::Checked(bound.segments) * bound.heads).saturated();
        case Per::Sequence:
            return divide_up(bound.length, callable.chunk) > stretch_chunks(callable, lanes) ? lanes
                                                                                             : 0;  // no stretch follows
        case Per::Worker:
            return 0;  // of GPUs
        case Per::Chunk:
            break;
    }
    return callable.in_stretches
               ? std::min(whole, std::max((support::Checked(lanes) * stretch_chunks(callable, lanes)).saturated(),
                                          stretch_chunks(callable, 1)))
               : whole;
}

}  // namespace forge::runtime
