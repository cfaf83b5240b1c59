/// How the states pass from one part of a sequence to the next. What a stretch of tokens does to a state is the map
/// h -> factor h + addend, channel by channel; the state before a stretch is the composition of all maps before it.
///
/// Within a tile the maps of its warps meet in shared memory. Between tiles they meet in the workspace (Merrill and
/// Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016), by groups of kGroup tiles: every tile but
/// the last of a group publishes its map, the last one the state after it. A tile composes the maps of its group before
/// it, from left to right, and applies them to the state after the group before. The order of operations depends on
/// nothing but the tile's place in its sequence, so that results are the same bits from run to run.
///
/// What is published is a word of 64 bits that is itself the sign of being there: it has not all bits set, which is what
/// the workspace is filled with.
#pragma once

#include "tile.h"

namespace forge::cuda {

using ptx::Word;

constexpr int kGroup = 16;
constexpr int kExchangeHeader = 256;  ///< bytes before the first tile's words
constexpr Word kNothing = ~Word{0};

/// h -> factor h + addend.
struct Map {
    float factor, addend;
};

FORGE_DEVICE Map then(const Map& first, const Map& second) { return {second.factor * first.factor, second.factor * first.addend + second.addend}; }

/// A factor of 0 forgets the state whatever it was.
FORGE_DEVICE float apply(const Map& map, float state) { return map.factor == 0.0f ? map.addend : map.factor * state + map.addend; }

FORGE_DEVICE Word word_of(const Map& map) {
    const Word word = static_cast<Word>(__float_as_uint(map.factor)) << 32 | __float_as_uint(map.addend);
    return word == kNothing ? word - 1 : word;  // one NaN for another
}
FORGE_DEVICE Map map_of(Word word) { return {__uint_as_float(static_cast<unsigned>(word >> 32)), __uint_as_float(static_cast<unsigned>(word))}; }

/// The words of a tile and state: one per channel.
template <int STATES>
FORGE_DEVICE Word* words_of(const Call& call, Size tile, int state) {
    return reinterpret_cast<Word*>(static_cast<char*>(call.exchange) + kExchangeHeader) + (tile * STATES + state) * kTileChannels;
}

/// What the warps of a block leave each other; `TENSORS` is how many token tensors the kernel reads and writes.
template <int STATES, int TENSORS>
struct Shared {
    Places<TENSORS> places[3];  ///< in turn: one that some threads still finish, one that is under way, the next
    Map parts[STATES][kWarps][kTileChannels];
    Map group[STATES][kGroup - 1][kTileChannels];  ///< the maps of earlier tiles
    float before[STATES][kWarps][kTileChannels];   ///< each warp's states
};

template <int STATES, int TENSORS, int BYTES>
FORGE_DEVICE Shared<STATES, TENSORS>& shared_memory() {
    static_assert(sizeof(Shared<STATES, TENSORS>) <= BYTES, "the launch reserves too little");
    static_assert(sizeof(Places<TENSORS>) % 16 == 0, "what lies behind the places is loaded in fours");
    return *static_cast<Shared<STATES, TENSORS>*>(ptx::block_memory());
}

/// This thread's map of a state over its rows, for `join`.
template <int STATES, int TENSORS>
FORGE_DEVICE void put_map(Shared<STATES, TENSORS>& shared, int state, const vec& factor, const vec& addend) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared.parts[state][warp()][lane() * kWidth + i] = {factor.x[i], addend.x[i]};
}

/// The state before this thread's rows, after `join`.
template <int STATES, int TENSORS>
FORGE_DEVICE vec state_before(const Shared<STATES, TENSORS>& shared, int state) {
    return load(&shared.before[state][warp()][lane() * kWidth]);
}

namespace detail {

/// Waits until all four words from p on are there.
FORGE_DEVICE void await_four(const Word* p, Map* to) {
    ptx::TwoWords a, b;
    do {
        a = ptx::load_two_relaxed(p), b = ptx::load_two_relaxed(p + 2);
    } while (a.x == kNothing || a.y == kNothing || b.x == kNothing || b.y == kNothing);
    to[0] = map_of(a.x), to[1] = map_of(a.y), to[2] = map_of(b.x), to[3] = map_of(b.y);
}

/// The state before the first token of a sequence, for its first tile.
FORGE_DEVICE float initial_state(const Call& call, int tensor, const Tile& at, int channel, int channels) {
    if (at.segment > 0) return 0.0f;
    const float* const from = state_block<const float>(call, tensor, at);
    const Size c = at.tile * kTileChannels + channel;
    return from && c < channels ? from[c * call.tensors[tensor].dim[0]] : 0.0f;
}

/// The map of a channel over the whole tile. With the initial state that of the first tile is known to its end.
template <int STATES, int TENSORS>
FORGE_DEVICE Map whole_map(const Shared<STATES, TENSORS>& shared, const Tile& at, int state, int channel, float initial) {
    Map map = shared.parts[state][0][channel];
#pragma unroll 4
    for (int w = 1; w < kWarps; ++w) map = then(map, shared.parts[state][w][channel]);
    return at.segment == 0 ? Map{0.0f, apply(map, initial)} : map;
}

/// From a channel's state before the tile to those before each warp's rows.
template <int STATES, int TENSORS>
FORGE_DEVICE void pass_on(Shared<STATES, TENSORS>& shared, int state, int channel, float h) {
#pragma unroll 4
    for (int w = 0; w < kWarps; ++w) {
        shared.before[state][w][channel] = h;
        h = apply(shared.parts[state][w][channel], h);
    }
}

}  // namespace detail

/// Where the states of a sequence come from and go to, in the call.
struct StateOf {
    int initial, final;
};

/// Makes the states before each warp's rows from the maps of all rows before. All threads call it, after put_map and sync;
/// they sync afterwards. Only the first tile reads the initial state, and what the last one gets depends on that having
/// been done, so that final states may take the place of initial ones. Where they do not, a tile waits for no state that a
/// factor of 0 makes it forget.
template <int STATES, int TENSORS>
FORGE_DEVICE void join(Shared<STATES, TENSORS>& shared, const Call& call, const Tile& at, const StateOf (&states)[STATES], int channels) {
    constexpr int kAll = STATES * kTileChannels, kEach = pieces(kAll, kThreads);  // channels of states, and a thread's
    const int place = static_cast<int>(at.segment % kGroup);                       // in its group
    const bool publishes = !at.last, ends_group = place == kGroup - 1, follows = at.segment >= kGroup;
    const Size side_by_side = call.tiles * call.heads;  // from a tile's number to that of the next tokens
    const Word* const before_group = words_of<STATES>(call, at.number - (place + 1) * side_by_side, 0);
    const int self = thread();
    Word before[kEach];    // asked for now, looked at later
    float initial[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        before[i] = follows ? ptx::load_relaxed(before_group + c) : kNothing;
        initial[i] = detail::initial_state(call, states[state].initial, at, channel, channels);
        if (publishes && !ends_group)
            ptx::store_relaxed(words_of<STATES>(call, at.number, 0) + c, word_of(detail::whole_map(shared, at, state, channel, initial[i])));
    }
#pragma unroll
    for (int state = 0; state < STATES; ++state)
        for (int n = kWarps - 1 - warp(); n < place; n += kWarps)  // the first warps are busy with the above
            detail::await_four(words_of<STATES>(call, at.number - (place - n) * side_by_side, state) + lane() * kWidth,
                               &shared.group[state][n][lane() * kWidth]);
    sync();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        Map map = {1.0f, 0.0f};
#pragma unroll 4
        for (int n = 0; n < place; ++n) map = then(map, shared.group[state][n][channel]);
        float h = initial[i];
        const void* const from = call.tensors[states[state].initial].data;
        const bool in_place = from && from == call.tensors[states[state].final].data;
        if (follows && (map.factor != 0.0f || in_place)) {
            while (before[i] == kNothing) before[i] = ptx::load_relaxed(before_group + c);
            h = map_of(before[i]).addend;
        }
        h = apply(map, h);
        if (publishes && ends_group)
            ptx::store_relaxed(words_of<STATES>(call, at.number, 0) + c, word_of({1.0f, apply(detail::whole_map(shared, at, state, channel, 0.0f), h)}));
        detail::pass_on(shared, state, channel, h);
    }
}

}  // namespace forge::cuda
