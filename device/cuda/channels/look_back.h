/// Tiles of a sequence joined through the workspace (Merrill and Garland, "Single-pass Parallel Prefix Scan with
/// Decoupled Look-back", 2016), by groups of kGroup tiles: every tile but the last of a group publishes its map, the
/// last one the state after it. A tile composes the maps of its group before it, from left to right, and applies them
/// to the state after the group before. The order of operations depends on nothing but the tile's place in its
/// sequence, so that results are the same bits from run to run.
///
/// Tiles are taken in order of their numbers, which run over the channels first and the tokens last: a block
/// that waits for an earlier tile of the same channels waits for one that some block has already started, so that there
/// is no deadlock. A block finishes its tiles in that order, too.
///
/// A published map is a word of 64 bits that is its own flag: the workspace is filled with ones before the kernel, and
/// a published word never has all bits set.
#pragma once

#include "../ptx/exchange.h"
#include "map.h"

namespace forge::cuda {

using ptx::Word;

static_assert(sizeof(Word) == kWordBytes, "the workspace has another size");
constexpr Word kNothing = ~Word{0};

template <int STATES, int TENSORS, unsigned MAXIMA = 0, int SUMS = 0, int ROWS = 1>
struct Shared : SharedByStrips<STATES, TENSORS, MAXIMA, SUMS> {
    Map group[STATES][kGroup - 1][kTileChannels];  ///< the maps of earlier tiles
};

template <class SHARED>
FORGE_DEVICE void start(SHARED&) {}

/// The tile of a number.
template <int CHANNELS, Order ORDER>
FORGE_DEVICE Tile tile_at(const Call& call, unsigned number) {
    const unsigned tiles = pieces(channels_of<CHANNELS>(call), kTileChannels);  // side by side
    const unsigned heads = heads_apart(call), block = number / tiles / heads;
    Size n = 0;
    if (call.offsets) n = sequence_of(call, block, kTileRows);
    else n = block / static_cast<unsigned>(first_block(call, 1, kTileRows));
    Tile at{};
    static_cast<Task&>(at) = sequence_task(call, n, number / tiles % heads, number % tiles);
    at.number = number;
    at.segment = block - first_block(call, n, kTileRows);
    at.block = first_block(call, n, kRows);
    place_rows<ORDER>(at);
    return at;
}

/// Takes the next tile. The counter is the first word of the workspace, and starts with all bits set.
template <int CHANNELS, Order ORDER = Order::Forwards>
FORGE_DEVICE Tile first_tile(const Call& call) {
    Tile at{};
    for (at.idle = true; at.idle && !at.done;) {
        const unsigned number = ptx::add_relaxed(static_cast<unsigned*>(call.exchange), 1) + 1;
        if (static_cast<Size>(number) < call.tasks) at = tile_at<CHANNELS, ORDER>(call, number);
        else at.done = true;
    }
    return at;
}
template <int CHANNELS, Order ORDER = Order::Forwards, int TENSORS>
FORGE_DEVICE void take_tile(Places<TENSORS>& next, const Places<TENSORS>& before, const Call& call) {
    if (thread() == 0) next.tile = before.tile.done ? before.tile : first_tile<CHANNELS, ORDER>(call);
}
template <Order ORDER = Order::Forwards, int TENSORS>
FORGE_DEVICE void place_tile(Places<TENSORS>& next, const Places<TENSORS>&, const Call& call,
                             const TensorOf (&tensors)[TENSORS]) {
    find_places(next, call, tensors);
}

FORGE_DEVICE Word word_of(const Map& map) {
    const Word word = static_cast<Word>(__float_as_uint(map.factor)) << 32 | __float_as_uint(map.addend);
    return word == kNothing ? word - 1 : word;  // one NaN for another
}
FORGE_DEVICE Map map_of(Word word) {
    return {__uint_as_float(static_cast<unsigned>(word >> 32)), __uint_as_float(static_cast<unsigned>(word))};
}

/// The words of a tile and state, of so many: one per channel.
FORGE_DEVICE Word* words_of(const Call& call, Size tile, int states, int state) {
    return reinterpret_cast<Word*>(static_cast<char*>(call.exchange) + kExchangeHeader) +
           (tile * states + state) * kTileChannels;
}

namespace detail {

/// Waits until all four words from p on have been published.
FORGE_DEVICE void await_four(const Word* p, Map* to) {
    ptx::TwoWords a, b;
    do {
        a = ptx::load_two_relaxed(p), b = ptx::load_two_relaxed(p + 2);
    } while (a.x == kNothing || a.y == kNothing || b.x == kNothing || b.y == kNothing);
    to[0] = map_of(a.x), to[1] = map_of(a.y), to[2] = map_of(b.x), to[3] = map_of(b.y);
}

/// With the initial state the map of the first tile is known to its end.
template <class MAPS>
FORGE_DEVICE Map known_map(const Map& map, const Tile& at, int state, float initial) {
    return at.segment == 0 ? Map{MAPS::forgotten(state), MAPS::apply(state, map, initial)} : map;
}

}  // namespace detail

/// Makes the states before the tile from the maps of all rows before. All threads call it, after put_map and
/// sync; they sync afterwards. Only the first tile reads the initial state, and what the last one gets depends on that
/// having been done, so that final states may take the place of initial ones. Where they do not, a tile waits for no
/// state that a factor of 0 makes it forget.
template <int STATES, int TENSORS, unsigned MAXIMA, int SUMS, int ROWS>
FORGE_DEVICE void join(Shared<STATES, TENSORS, MAXIMA, SUMS, ROWS>& shared, const Call& call, const Tile& at,
                       const Round& joined, const StateOf (&states)[STATES], int channels) {
    constexpr int kAll = STATES * kTileChannels, kEach = pieces(kAll, kThreads);  // channels of states, and a thread's
    const int place = static_cast<int>(at.segment % kGroup);                      // in its group
    const bool publishes = !at.last, ends_group = place == kGroup - 1, follows = at.segment >= kGroup;
    // From a tile's number to that of the next tokens.
    const Size side_by_side = Size{pieces(channels, kTileChannels)} * heads_apart(call);
    const auto words = [&](Size tile, int state = 0) {
        return words_of(call, tile, ROWS * STATES, joined.place() * STATES + state);
    };
    const Word* const before_group = words(at.number - (place + 1) * side_by_side);
    const int self = thread();
    Word before[kEach];  // asked for now, looked at later
    float initial[kEach];
    Map whole[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        before[i] = follows ? ptx::load_relaxed(before_group + c) : kNothing;
        initial[i] = at.segment == 0
                         ? detail::initial_state(call, states[state].initial, at, joined.row, channel, channels)
                         : 0.0f;
        whole[i] = detail::join_warps(shared, state, channel);
        if (publishes && !ends_group)
            ptx::store_relaxed(words(at.number) + c,
                               word_of(detail::known_map<Maps<MAXIMA>>(whole[i], at, state, initial[i])));
    }
#pragma unroll
    for (int state = 0; state < STATES; ++state)
        for (int n = kStrips - 1 - strip(); n < place; n += kStrips)  // the first threads are busy with the above
            detail::await_four(words(at.number - (place - n) * side_by_side, state) + strip_channel(),
                               &shared.group[state][n][strip_channel()]);
    sync();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        Map map = Maps<MAXIMA>::nothing_done(state);
#pragma unroll 4
        for (int n = 0; n < place; ++n) map = Maps<MAXIMA>::then(state, map, shared.group[state][n][channel]);
        float h = initial[i];
        if (follows && (map.factor != Maps<MAXIMA>::forgotten(state) || call.in_place)) {
            while (before[i] == kNothing) before[i] = ptx::load_relaxed(before_group + c);
            h = map_of(before[i]).addend;
        }
        h = Maps<MAXIMA>::apply(state, map, h);
        if (publishes && ends_group)
            ptx::store_relaxed(words(at.number) + c, word_of({1.0f, Maps<MAXIMA>::apply(state, whole[i], h)}));
        shared.before[state][channel] = h;
    }
}

}  // namespace forge::cuda
