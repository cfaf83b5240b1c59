/// Outputs of skipped sequences (those whose state has no slot) are zero: here on the CPU. On a GPU kernels write the
/// zeros (Callable::clears_skipped), or all outputs are cleared before kernels write those of the other sequences.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

void clear_skipped(const Callable& callable, const Bound& bound);

/// An output's place among the tensors and its size; RuntimeError if it is not dense. Empty ones are left out.
struct OutputMemory {
    std::size_t tensor;
    std::size_t bytes;
};
List<OutputMemory> dense_outputs(const Callable& callable, const Arguments& call, Memory* memory);

}  // namespace forge::runtime
