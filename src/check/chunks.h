/// Whether a definition means the same for every size of chunks. Most do, and the compiler chooses the size; one that
/// does not has to fix it. A `step` settles the question, as every compiled variant is compared with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/definition.h"

namespace forge::check {

/// Where two sizes of chunks make a difference first.
struct ChunkDependence {
    std::string name;
    bool is_state = false;
    std::int64_t token = -1;  ///< the first one whose output differs
    std::int64_t chunk = 0, other = 0;
    double difference = 0;  ///< there, relative to the largest number
};

/// Runs the definition by the interpreter, in float64 on random inputs, with all sizes of chunks. nullopt if results
/// agree, or none is finite, or the definition has a `step` or a fixed chunk.
std::optional<ChunkDependence> chunk_dependence(const ir::Definition& def);

/// What differs and what to do about it, in words.
std::string to_string(const ChunkDependence& found);

}  // namespace forge::check
