/// A strategy is a placement of slices in kernels. One-pass: everything in one scan. Fused: the scan makes states, a
/// second kernel makes outputs for all chunks at once. Decoupled: state-free work of all chunks first, then a scan of
/// the state-bound slice alone, then the outputs. What passes from kernel to kernel becomes Spill results and parameters.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::plan {

enum class Strategy : std::uint8_t { OnePass, Fused, Decoupled };
const char* to_string(Strategy strategy);
std::vector<Strategy> all_strategies();
/// nullptr-safe lookup: throws RuntimeError with the list of names for an unknown one.
Strategy strategy_named(const std::string& name);

enum class Loop : std::uint8_t {
    Scan,    ///< one task per (sequence, head, tile); chunks in order
    Chunks,  ///< one task per (chunk, head, tile)
};

struct KernelGraph {
    std::string name;
    Loop loop = Loop::Scan;
    ir::Function fn;
};

std::vector<KernelGraph> place(const ir::Function& program, Strategy strategy);

}  // namespace forge::plan
