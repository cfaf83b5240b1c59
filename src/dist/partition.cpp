#include <fmt/format.h>

#include <algorithm>

#include "forge/dist.h"

namespace forge::dist {
namespace {

void check_offsets(std::span<const std::int64_t> cu_seqlens, std::span<const std::int64_t> shards, int size) {
    const auto check = [](const char* name, std::span<const std::int64_t> offsets) {
        if (offsets.front() != 0)
            throw RuntimeError(fmt::format("{}: expected 0 as the first offset, got {}", name, offsets.front()));
        const auto falls = std::adjacent_find(offsets.begin(), offsets.end(), std::greater<>());
        if (falls != offsets.end())
            throw RuntimeError(
                fmt::format("{}: expected offsets that do not fall, got {} after {}", name, falls[1], *falls));
    };
    if (cu_seqlens.empty()) throw RuntimeError("cu_seqlens: expected offsets of sequences, got none");
    check("cu_seqlens", cu_seqlens);
    if (shards.empty()) return;
    if (shards.size() != static_cast<std::size_t>(size) + 1)
        throw RuntimeError(
            fmt::format("shard_offsets: expected {}, one more than ranks, got {}", size + 1, shards.size()));
    check("shard_offsets", shards);
    if (shards.back() != cu_seqlens.back())
        throw RuntimeError(fmt::format("shard_offsets: expected the number of tokens, {}, as the last offset, got {}",
                                       cu_seqlens.back(), shards.back()));
}

}  // namespace

SeqPartition SeqPartition::build(std::span<const std::int64_t> cu_seqlens, int rank, int size,
                                 std::span<const std::int64_t> shard_offsets) {
    if (size < 1 || rank < 0 || rank >= size)
        throw RuntimeError(fmt::format("rank: expected 0 to {}, got {}", size - 1, rank));
    check_offsets(cu_seqlens, shard_offsets, size);
    const std::int64_t tokens = cu_seqlens.back();
    const auto border = [&](int r) {
        if (!shard_offsets.empty()) return shard_offsets[static_cast<std::size_t>(r)];
        return tokens / size * r + std::min<std::int64_t>(r, tokens % size);
    };
    // The rank of a token, which the rank after the borders before it has; of the end, the last one.
    const auto rank_of = [&](std::int64_t token) {
        int r = 0;
        while (r + 1 < size && border(r + 1) <= token) ++r;
        return r;
    };
    SeqPartition p;
    p.begin = border(rank), p.end = border(rank + 1);
    p.first_rank = p.last_rank = rank;
    p.cu_seqlens = {0};
    for (std::size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
        const std::int64_t from = cu_seqlens[n], to = cu_seqlens[n + 1];
        const int first = rank_of(from), last = to > from ? rank_of(to - 1) : first;
        if (rank < first || rank > last) continue;
        if (p.sequences.empty()) p.first_rank = first, p.has_prev = first < rank;
        p.last_rank = last, p.has_next = last > rank;
        p.sequences.push_back(static_cast<std::int64_t>(n));
        p.cu_seqlens.push_back(std::clamp(to, p.begin, p.end) - p.begin);
    }
    return p;
}

}  // namespace forge::dist
