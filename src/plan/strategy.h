/// A strategy is a placement of slices in kernels. One-pass: everything in one scan. Fused: the scan makes states, a
/// second kernel makes outputs for all chunks at once. Decoupled: state-free work of all chunks first, then a scan of
/// the state-bound slice alone, then the outputs. Segmented: one-pass over segments of the sequence at once, joined by
/// their summaries. Each kernel goes through its tasks by a loop.
#pragma once

#include <string>
#include <vector>

#include "runtime/callable.h"

namespace forge::plan {

enum class Strategy : std::uint8_t { OnePass, Fused, Decoupled, Segmented };
const char* to_string(Strategy strategy);
std::vector<Strategy> all_strategies();
/// RuntimeError with the list of names for an unknown one.
Strategy strategy_named(const std::string& name);

using runtime::Loop;
using runtime::per_segment;
const char* to_string(Loop loop);  ///< what a task does, in words
bool in_order(Loop loop);          ///< whether a task walks over several chunks or segments
bool is_scan(Loop loop);           ///< … over chunks from the states that are before them

}  // namespace forge::plan
