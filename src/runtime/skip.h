/// Outputs of skipped sequences (those whose state has no slot) are zero: here on the CPU, on a GPU all outputs are
/// cleared before the kernels write those of the others.
#pragma once

#include "runtime/binding.h"

namespace forge::runtime {

void clear_skipped(const plan::Plan& plan, const Bound& bound);

/// An output's place in the plan's tensors and its size; RuntimeError if it is not dense. Empty ones are left out.
struct OutputMemory {
    std::size_t tensor;
    std::size_t bytes;
};
std::vector<OutputMemory> dense_outputs(const plan::Plan& plan, const Call& call);

}  // namespace forge::runtime
