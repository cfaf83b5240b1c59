/// Schedules for kernels whose tiles lie in a GPU's shared memory (the portable CUDA path): the largest chunk, and of
/// the parallel axis the largest part, that fit and still give every multiprocessor a task. Where nothing fits, what
/// needs least, and some of its tiles in global memory: every program has kernels. A pure function of plain data.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.h"

namespace forge::target {

/// One GPU, as far as fitting needs it.
struct SharedMemory {
    std::int64_t bytes = 99 * 1024;  ///< of tiles, per block of threads
    int multiprocessors = 108;
    std::int64_t all_bytes = 0;  ///< … where nothing but tiles lies in shared memory; 0: no more than `bytes`
    std::int64_t processor_bytes = tile::kProcessorBytes;  ///< what a multiprocessor's blocks have together
    double bytes_per_microsecond = 0;                      ///< from and to global memory; 0: an H200's
};

struct FitWishes {
    std::optional<plan::Strategy> strategy;
    std::int64_t chunk = 0, tiles = 0, segments = 0;          ///< 0: chosen
    std::int64_t expected_tokens = 4096, expected_tasks = 1;  ///< sequences × heads
    bool tile_chunks = true;                                  ///< kernels of single chunks take a part of it too
    int threads = 0;                                          ///< of a block; 0: chosen
    /// Of kernels that hold fragments, whose instructions multiply them.
    plan::Engine fragments = plan::Engine::WarpGroups;
    bool hold = true;         ///< token by token, states in registers where that can be
    DType state_dtype = F32;  ///< of states in memory
};

/// Tokens of a chunk, of which none is mostly padding.
std::vector<std::int64_t> chunks_of(const FitWishes& wishes);

/// The first that fits, of large chunks before small ones, and of tiles that occupy the multiprocessors.
plan::Schedule fit_shared_memory(const ir::Definition& definition, const ir::Function& program,
                                 const tile::Sizes& sizes, const SharedMemory& memory, const FitWishes& wishes);

}  // namespace forge::target
