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
};

/// A thread's part of a tile.
struct Part {
    Size row;      ///< its first token, within the sequence
    int rows;      ///< how many of its tokens there are; none if it is not positive
    int channel;   ///< its first, within the head
    int channels;  ///< how many of its channels there are, likewise

    FORGE_DEVICE bool whole() const { return rows >= kRows && channels >= kWidth; }
};

/// `channels`: of a head.
FORGE_DEVICE Part part_of(const Tile& at, int channels) {
    Part part;
    part.row = at.row + warp() * kRows;
    const Size left = at.end - part.row;
    part.rows = static_cast<int>(left < kRows ? left : kRows);
    part.channel = static_cast<int>(at.tile) * kTileChannels + lane() * kWidth;
    part.channels = channels - part.channel;
    return part;
}

/// A tile, and the address of its first element in each token tensor of the kernel, in the kernel's order.
template <int TENSORS>
struct alignas(16) Places {
    Tile tile;
    char* first[TENSORS];
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

/// Which tensor of the call a kernel's tensor is.
struct TensorOf {
    int tensor, element_bytes;
    bool channels;  ///< rather than one number per token
};

/// The addresses of a tile, each by a thread of its own: they take many operations.
template <int TENSORS>
FORGE_DEVICE void find_places(Places<TENSORS>& places, const Call& call, const TensorOf (&tensors)[TENSORS]) {
    const Tile& at = places.tile;
#pragma unroll
    for (int i = 0; i < TENSORS; ++i) {
        if (thread() != i * kLanes % kThreads) continue;
        const CallTensor& t = call.tensors[tensors[i].tensor];
        const Size head = t.group == 1 ? at.head : static_cast<unsigned>(at.head) / static_cast<unsigned>(t.group);
        const Size token = at.sequence * t.sequence + (at.start + at.row) * t.token + head * t.head;
        const Size channel = tensors[i].channels ? at.tile * kTileChannels * t.dim[0] : 0;
        places.first[i] = static_cast<char*>(t.data) + (token + channel) * tensors[i].element_bytes;
    }
}

}  // namespace forge::cuda
