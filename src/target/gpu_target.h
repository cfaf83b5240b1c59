/// What the targets of GPUs share: trying wishes one after the other, each of which gives a schedule or a refusal.
#pragma once

#include "target/simt/shared_memory.h"
#include "target/target.h"

namespace forge::target {

/// Throws Refused if the program, the GPU or the wishes do not admit a target's kernels.
using Fit = plan::Schedule (*)(const ir::Definition& definition, const ir::Function& program, const Question& question,
                               const Wishes& wishes);

/// Candidates for the question's wishes and then, if all are asked for, for what `variations` change in them and the
/// caller left open; of those that come out the same, or are refused for the same reason, one. Exceptions for the
/// question's own wishes leave it; those for variations become refusals.
std::vector<Candidate> tried(const Target& target, Fit fit, const ir::Definition& definition,
                             const ir::Function& program, const Question& question,
                             const std::vector<Wishes>& variations);

FitWishes fit_wishes(const Problem& problem, const Wishes& wishes);

constexpr int kDefaultThreads = 256;  ///< of a block, unless the caller asks for others

/// What the kernels of blocks of so many threads have of a GPU's shared memory.
SharedMemory shared_memory_of(const GpuFacts& gpu, int threads);

// Variations.
Wishes with_strategy(Wishes wishes, plan::Strategy strategy);
Wishes with_segments(Wishes wishes, std::int64_t segments);
Wishes with_tiles(Wishes wishes, std::int64_t tiles);  ///< of one pass
Wishes with_threads(Wishes wishes, int threads);
Wishes with_chunk(Wishes wishes, std::int64_t chunk);
/// Every strategy, several numbers of segments and of tiles.
std::vector<Wishes> placements(const Wishes& wishes);

}  // namespace forge::target
