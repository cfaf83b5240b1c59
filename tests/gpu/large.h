/// Long sequences, and tensors of more than 2^31 elements, on a GPU: against the CPU's kernels in float32, which share
/// no code with the GPU's, for a few heads. Tokens are compared in windows all over the sequences; final states, where
/// all tokens meet, whole.
#pragma once

#include <string>
#include <vector>

namespace forge::gpu {

struct LargeCalls {
    std::string only;  ///< a program's name; empty: every variant
    std::string strategy = "all", engine = "auto";
    std::string shape;  ///< a part of its name; empty: all
    std::string csv;    ///< a file, or empty
};

/// K = V = 128, bf16: a row per program, shape and strategy to standard output and the CSV. Needs up to 110 GB of the
/// device's memory. The exit status: 0 if everything was right.
int check_large(const LargeCalls& which);

}  // namespace forge::gpu
