/// Row loops: elementwise ops, scans and sums over the rows of one [M, N] that can run in a single
/// pass over its elements. Scans and sums carry one row from the row before, so nothing between the
/// loop's inputs and outputs needs a tile, and token tensors are read and written where they lie.
/// Decides which ops share a loop; layouts and code come later.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::tile {

/// The ops of one row loop, neighbours in their function, in the order in which a row computes
/// them.
struct Stream {
    std::vector<ir::ValueId> members;
    std::vector<ir::ValueId> inputs;   ///< token inputs that nothing else reads: no tile is loaded
    std::vector<ir::ValueId> outputs;  ///< members that are stored to output tensors and read by nothing outside
    [[nodiscard]] bool has(ir::ValueId v) const {
        return !members.empty() && v >= members.front() && v <= members.back();
    }
};

struct Streamed {
    ir::Function fn;  ///< the same ops, those of a loop side by side
    std::vector<Stream> streams;
};

/// Finds the loops of a function whose sizes are bound. Only loops with a scan count: the rest is
/// as well off in the loops of its users.
Streamed find_streams(const ir::Function& fn);

/// Whether an op makes each row from the one before.
bool is_scan(const ir::Op& op);

/// Whether v reads nothing but the last row of its operand.
bool is_last_row(const ir::Function& fn, ir::ValueId v);

}  // namespace forge::tile
