/// Times of calls on a GPU by graph replay, for the sizes of docs/performance.md.
#pragma once

#include <cstdint>
#include <string>

namespace forge::gpu {

/// B = 1, 32 heads, K = V = 128, bf16, T from 1K to `most_tokens` (0: 32K): a row per variant, strategy and T to
/// standard output and the CSV.
int measure(const std::string& only, const std::string& strategy, int threads, std::int64_t most_tokens,
            const std::string& csv_file);

}  // namespace forge::gpu
