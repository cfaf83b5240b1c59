/// Loop nests for elementwise work: one statement per op, at the outermost loop where its operands are known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/expression.h"
#include "emit/writer.h"
#include "ir/function.h"
#include "tile/stream.h"

namespace forge::emit {

/// How the elements of a tile are walked over.
enum class Walk : std::uint8_t {
    Nested,  ///< a loop per axis, by one thread
    Shared,  ///< one loop over all vectors, shared out over the threads of a block; vectors are loaded from aligned
             ///< addresses
    Held,    ///< each thread over the vectors that it holds of a matrix
};

/// Writes the loops that compute value `root` (elementwise, or a copy) into its tile.
void write_loops(Writer& out, const ir::Function& fn, ir::ValueId root, const std::vector<std::string>& names,
                 Walk walk);

/// Writes the loops that put what threads hold of a matrix's parts, one below the other, into what they hold of it.
void write_joined(Writer& out, const ir::Function& fn, ir::ValueId joined, const std::vector<std::string>& names);

/// The type of what a thread holds of a matrix (device/cuda/portable/held.h).
std::string held_type(const ir::Type& type);

/// The tensors that a row loop reads and writes where they lie: the names of their `Rows`, by value.
using RowTensors = std::map<ir::ValueId, std::string>;

/// Writes the one loop over the elements of a stream, row by row: its scans carry the row before.
void write_rows(Writer& out, const ir::Function& fn, const tile::Stream& stream, const std::vector<std::string>& names,
                const RowTensors& tensors);

/// `name + 12`, or `name`: where a tile or a view of one begins.
std::string tile_pointer(const ir::Function& fn, ir::ValueId v, const std::vector<std::string>& names);

}  // namespace forge::emit
