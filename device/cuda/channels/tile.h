/// The work of a block of threads in a channel kernel: a tile of kTileRows tokens by kTileChannels channels of one head.
///
/// A warp has kRows tokens, one after the other; a lane has kWidth adjacent channels of them, as a `vec` each. Tiles are
/// taken in order of their numbers, which run over the channels first and the tokens last: whoever waits for what an
/// earlier tile of the same channels leaves waits for one that has begun.
#pragma once

#include "../portable/call.h"
#include "../portable/thread.h"
#include "../portable/vec.h"
#include "../ptx/exchange.h"

namespace forge::cuda {

constexpr int kRows = FORGE_ROWS;
constexpr int kTileRows = kRows * kWarps;
constexpr int kTileChannels = kWidth * kLanes;

struct Tile : Task {
    Size number;   ///< among all tiles of the launch
    Size segment;  ///< among the tiles of its sequence, head and channels
    bool done;     ///< there is none: all are taken

    /// How many of this thread's tokens there are; none if it is not positive.
    FORGE_DEVICE int rows() const {
        const Size left = end - row - warp() * kRows;
        return static_cast<int>(left < kRows ? left : kRows);
    }
    FORGE_DEVICE Size first_row() const { return row + warp() * kRows; }
    /// The channel, within the head, of this thread's first.
    FORGE_DEVICE Size channel() const { return tile * kTileChannels + lane() * kWidth; }
};

/// The tile of a number. `call.tiles` is how many stand side by side over the channels.
FORGE_DEVICE Tile tile_at(const Call& call, unsigned number) {
    const unsigned tiles = static_cast<unsigned>(call.tiles), heads = static_cast<unsigned>(call.heads), block = number / tiles / heads;
    Size n = 0;
    if (call.offsets) n = sequence_of(call, block, kTileRows);
    else n = block / static_cast<unsigned>(first_block(call, 1, kTileRows));
    Tile at{};
    static_cast<Task&>(at) = sequence_task(call, n, number / tiles % heads, number % tiles);
    at.number = number;
    at.segment = block - first_block(call, n, kTileRows);
    at.row = at.segment * kTileRows;
    at.idle = at.row > 0 && at.row >= at.tokens;
    at.end = at.row + kTileRows < at.tokens ? at.row + kTileRows : at.tokens;
    at.last = at.end == at.tokens;
    return at;
}

/// The next tile that nobody has taken, for one thread; the counter stands at the head of the workspace, from all bits 1.
FORGE_DEVICE Tile take_tile(const Call& call) {
    Tile at{};
    for (at.idle = true; at.idle && !at.done;) {
        const unsigned number = ptx::add_relaxed(static_cast<unsigned*>(call.exchange), 1) + 1;
        if (static_cast<Size>(number) < call.tasks) at = tile_at(call, number);
        else at.done = true;
    }
    return at;
}

}  // namespace forge::cuda
