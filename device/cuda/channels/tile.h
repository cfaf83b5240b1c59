/// The work of a block of threads in a channel kernel: a tile of kTileRows tokens by kTileChannels channels of one
/// head.
///
/// A strip of kStripLanes threads has kRows tokens, one after the other; each of its threads has kWidth adjacent
/// channels of them, as a `vec` each. A block has kStrips of them, one after the other too.
#pragma once

#include "../portable/call.h"
#include "../portable/thread.h"
#include "../portable/vec.h"
#include "sizes.h"

namespace forge::cuda {

constexpr int kRows = FORGE_ROWS;
constexpr int kStripLanes = kTileChannels / kWidth;
constexpr int kStrips = kThreads / kStripLanes;
constexpr int kTileRows = kRows * kStrips;

FORGE_DEVICE int strip() { return thread() / kStripLanes; }
/// The first of this thread's channels, in the tile.
FORGE_DEVICE int strip_channel() { return thread() % kStripLanes * kWidth; }

/// Whether the channels are heads, as of states that are numbers: there is one head then, whose channels lie where
/// heads lie in memory.
#ifdef FORGE_HEAD_CHANNELS
constexpr bool kHeadChannels = true;
#else
constexpr bool kHeadChannels = false;
#endif

FORGE_DEVICE Size channel_step(const CallTensor& t) { return kHeadChannels ? t.head : t.dim[0]; }
/// Of a tensor with rows of channels, as states have that are matrices.
FORGE_DEVICE Size channel_step(const CallTensor& t, bool of_rows) { return of_rows ? t.dim[1] : channel_step(t); }

/// No row, of what has none.
constexpr int kNoRow = -1;
/// The elements before a row.
FORGE_DEVICE Size before_row(const CallTensor& t, int row) { return row == kNoRow ? 0 : row * t.dim[0]; }
/// Of a head.
template <int CHANNELS>
FORGE_DEVICE int channels_of(const Call& call) {
    return kHeadChannels ? static_cast<int>(call.heads) : CHANNELS;
}
/// Heads that have tiles of their own.
FORGE_DEVICE unsigned heads_apart(const Call& call) { return kHeadChannels ? 1 : static_cast<unsigned>(call.heads); }

struct Tile : Task {
    Size number;   ///< among all tiles of the launch
    Size segment;  ///< among the tiles of its sequence, head and channels
    bool done;     ///< there is none: all are taken
};

/// How a kernel goes through a sequence. Tiles, strips and their maps are counted in this order; rows of tokens, and
/// the threads that have them, as they lie in memory.
enum class Order : unsigned char { Forwards, Backwards };

/// The place of this thread's strip among those of its tile.
template <Order ORDER>
FORGE_DEVICE int strip_in_order() {
    return ORDER == Order::Forwards ? strip() : kStrips - 1 - strip();
}

/// Sets a tile's rows from its place among those of its sequence. Tiles begin at the same tokens in either order; the
/// last one ends with the sequence's last token or, backwards, begins with its first. Those behind it are idle.
template <Order ORDER>
FORGE_DEVICE void place_rows(Tile& at) {
    const Size walked = at.segment * kTileRows;
    at.idle = walked > 0 && walked >= at.tokens;
    at.row = walked;
    if (ORDER == Order::Backwards) {
        const Size tiles = (at.tokens + kTileRows - 1) / kTileRows, row = (tiles - 1 - at.segment) * kTileRows;
        at.row = at.idle ? at.tokens : row > 0 ? row : 0;
    }
    at.end = at.row + kTileRows < at.tokens ? at.row + kTileRows : at.tokens;
    at.last = !at.idle && (ORDER == Order::Forwards ? at.end == at.tokens : at.row == 0);
}

/// A thread's part of a tile.
struct Part {
    Size row;      ///< its first token, within the sequence
    int rows;      ///< how many of its tokens there are; none if it is not positive
    int channel;   ///< its first, within the head
    int channels;  ///< how many of its channels there are, likewise

    FORGE_DEVICE bool whole() const { return rows >= kRows && channels >= kWidth; }
    FORGE_DEVICE bool empty() const { return rows <= 0 || channels <= 0; }
};

/// `channels`: of a head.
FORGE_DEVICE Part part_of(const Tile& at, int channels) {
    Part part;
    part.row = at.row + strip() * kRows;
    const Size left = at.end - part.row;
    part.rows = static_cast<int>(left < 0 ? 0 : left < kRows ? left : kRows);
    part.channel = static_cast<int>(at.tile) * kTileChannels + strip_channel();
    part.channels = channels - part.channel;
    return part;
}

/// A tile, and the address of its first element in each token tensor of the kernel, in the kernel's order.
template <int TENSORS>
struct alignas(16) Places {
    Tile tile;
    char* first[TENSORS];
};

/// Which tensor of the call a kernel's tensor is.
struct TensorOf {
    int tensor, element_bytes;
    bool channels;         ///< rather than one number per token
    int rows = 1;          ///< per token
    bool of_rows = false;  ///< of channels
};

/// The address of a tile's first element in a tensor.
FORGE_DEVICE char* first_of(const Call& call, const Tile& at, const TensorOf& tensor) {
    const CallTensor& t = call.tensors[tensor.tensor];
    const Size token =
        at.sequence * t.sequence + (at.start + at.row) * tensor.rows * t.token + quotient(at.head, t.group) * t.head;
    const Size channel = tensor.channels ? at.tile * kTileChannels * channel_step(t, tensor.of_rows) : 0;
    return static_cast<char*>(t.data) + (token + channel) * tensor.element_bytes;
}

/// The addresses of a tile, each by a thread of its own: they take many operations.
template <int TENSORS>
FORGE_DEVICE void find_places(Places<TENSORS>& places, const Call& call, const TensorOf (&tensors)[TENSORS]) {
#pragma unroll
    for (int i = 0; i < TENSORS; ++i)
        if (thread() == i * kLanes % kThreads) places.first[i] = first_of(call, places.tile, tensors[i]);
}

}  // namespace forge::cuda
