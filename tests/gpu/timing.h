/// Times of calls on a GPU by graph replay, for the sizes of docs/performance.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::gpu {

/// What is measured of a program: every strategy, `all`, the one that would be chosen, `auto`, or one of them.
struct Kernels {
    std::string strategy, engine;
    int threads;
};

/// B = 1, 32 heads, K = V = 128, bf16, T from 1K to `most_tokens` (0: 32K): a row per program, strategy and T to
/// standard output and the CSV; of the variants, or of the programs that are named.
int measure(const std::vector<std::string>& only, const Kernels& kernels, std::int64_t most_tokens,
            const std::string& csv_file);

}  // namespace forge::gpu
