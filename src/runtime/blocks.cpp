#include "runtime/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "support/divide.h"

namespace forge::runtime {

namespace {

/// Segments of equal length, as many in the longest sequence as were planned; every sequence has one at least.
void count_segments(const Callable& callable, Bound& bound) {
    const std::int64_t chunk = callable.chunk, wanted = std::max<std::int64_t>(1, callable.segments);
    std::int64_t most = 1;
    for (const device::Size tokens : bound.tokens) most = std::max<std::int64_t>(most, (tokens + chunk - 1) / chunk);
    bound.segment_rows = (most + wanted - 1) / wanted * chunk;
    const auto segments_of = [&](std::int64_t n) {
        return std::max<std::int64_t>(
            1, (bound.tokens[static_cast<std::size_t>(n)] + bound.segment_rows - 1) / bound.segment_rows);
    };
    std::int64_t all = 0;
    for (std::int64_t n = 0; n < bound.sequences; ++n) all += segments_of(n);
    bound.segment_sequence.reserve(static_cast<std::size_t>(all));
    bound.first_segment.reserve(static_cast<std::size_t>(bound.sequences) + 1);
    for (std::int64_t n = 0; n < bound.sequences; ++n) {
        const std::int64_t segments = segments_of(n);
        bound.first_segment.push_back(bound.segments);
        bound.segment_sequence.insert(bound.segment_sequence.end(), static_cast<std::size_t>(segments),
                                      static_cast<int>(n));
        bound.segments += segments;
    }
    bound.first_segment.push_back(bound.segments);
    bound.summaries = bound.segments, bound.summary_rows = bound.segment_rows;
}

/// Segments per sequence that a call has on a GPU.
std::int64_t segments_wanted(const Callable& callable, const Bound& bound) {
    const std::int64_t segments = std::max<std::int64_t>(1, callable.segments), at_once = callable.relay_lanes;
    if (at_once == 0 || segments == 1) return segments;
    constexpr double kWorthIt = 0.9;
    const support::Checked all = support::Checked(bound.sequences) * bound.heads;
    const auto rounds = [&](std::int64_t of_each) {
        return static_cast<double>(support::divide_up((all * of_each).saturated(), at_once)) /
               static_cast<double>(of_each);
    };
    return all.saturated() > at_once && rounds(segments) <= kWorthIt * rounds(1) ? segments : 1;
}

}  // namespace

void check_magnitude(const Callable& callable, const Bounds& of) {
    constexpr std::int64_t kMostSequences = std::numeric_limits<std::int32_t>::max(), kLargestChunk = 128;
    if (of.sequences > kMostSequences)
        throw RuntimeError(
            fmt::format("{}: expected at most {} sequences, got {}", callable.name, kMostSequences, of.sequences));
    const support::Checked tokens = of.tokens, sequences = std::max<std::int64_t>(1, of.sequences);
    const support::Checked rows = of.packed ? tokens + sequences * kLargestChunk : sequences * (tokens + kLargestChunk);
    const std::int64_t parts = std::max<std::int64_t>(1, callable.tiles);
    if (!(rows * std::max<std::int64_t>(1, of.heads) * parts).at_most())
        throw RuntimeError(fmt::format("{}: more tasks than 64 bits count: {} sequences, {} tokens{}, {} heads",
                                       callable.name, of.sequences, of.tokens, of.packed ? " in all" : "", of.heads));
}

void count_blocks(const Callable& callable, Bound& bound) {
    const std::int64_t chunk = callable.chunk;
    for (const device::Size tokens : bound.tokens) bound.chunks += (tokens + chunk - 1) / chunk;
    count_segments(callable, bound);
}

void bound_blocks(const Callable& callable, Bound& bound) {
    const std::int64_t chunk = callable.chunk, parts = std::max<std::int64_t>(1, callable.summaries);
    const std::int64_t wanted = segments_wanted(callable, bound) * parts;
    const std::int64_t most = std::max<std::int64_t>(1, (bound.length + chunk - 1) / chunk);
    bound.summary_rows = (most + wanted - 1) / wanted * chunk;
    bound.segment_rows = bound.summary_rows * parts;
    bound.chunks = bound.blocks(chunk);
    bound.segments = bound.blocks(bound.segment_rows);
    bound.summaries = bound.blocks(bound.summary_rows);
}

Bound bind(const Callable& callable, const Bounds& bounds) {
    const auto not_negative = [&](std::int64_t n, const char* name) {
        if (n < 0)
            throw RuntimeError(fmt::format("{}: bounds: expected {} of at least 0, got {}", callable.name, name, n));
    };
    not_negative(bounds.sequences, "sequences"), not_negative(bounds.tokens, "tokens"),
        not_negative(bounds.heads, "heads");
    check_magnitude(callable, bounds);
    Bound bound;
    bound.sequences = bounds.sequences;
    bound.heads = bounds.heads;
    bound.length = bounds.tokens;
    bound.packed = bounds.packed;
    bound.chunks = bound.blocks(callable.chunk);
    // Parts of whole chunks, `wanted` in the longest sequence; the device counts packed ones from the total length.
    const auto parts = [&](std::int64_t wanted) {
        return std::min(bound.chunks,
                        std::max((support::Checked(bounds.sequences) * wanted).saturated(), bounds.sequences + wanted));
    };
    const std::int64_t segments = std::max<std::int64_t>(1, callable.segments);
    bound.segments = parts(segments);
    bound.summaries = parts(segments * std::max<std::int64_t>(1, callable.summaries));
    return bound;
}

}  // namespace forge::runtime
