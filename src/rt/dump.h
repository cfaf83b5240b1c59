/// A call as a file: the definition, what it was compiled for, every tensor as it lay in memory before the call and, of
/// results, after it. `forge replay` makes the call again, on a CPU. A call on a GPU waits for its stream, before and
/// after.
///
/// The file is a header in JSON, a byte 0, the bytes of the tensors in the header's order, and a seal (rt/seal.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rt/package.h"

namespace forge::rt {

/// A tensor of a call. `before` and `after` are the memory from its lowest element to its highest one.
struct DumpedTensor {
    std::string name;  ///< as in messages: q, initial_states.s, cu_seqlens
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape, strides;  ///< in elements; of one that was not given: none
    bool given = false;
    int same_as = -1;           ///< an earlier tensor that is the same memory, whose contents are not repeated
    std::string before, after;  ///< after: of what the call writes

    [[nodiscard]] std::int64_t first() const;        ///< the element with index 0, counted from the lowest one
    [[nodiscard]] std::size_t memory_bytes() const;  ///< RuntimeError for more than memory can have
};

struct DumpedCall {
    std::string build, definition, text, entry, target, schedule;
    DType dtype = DType::F32;
    std::map<std::string, std::int64_t> sizes;
    std::int64_t chunk = 0;
    std::vector<DumpedTensor> tensors;  ///< those of the entry point, in order
    std::vector<double> scalars;
    DumpedTensor cu_seqlens, initial_slots, final_slots, has_initial_state, chunk_slots;
};

/// Makes a call and writes it; the file is there whole or not at all. RuntimeError where it cannot be written, and what
/// the call itself throws; then the file has no results.
void dump_call(const EntryPoint& entry, const runtime::Arguments& call, const std::string& build,
               const std::string& path);

/// RuntimeError, which names the file, for what is damaged, truncated, something else or of a newer format.
DumpedCall read_dump(const std::string& path);

}  // namespace forge::rt
