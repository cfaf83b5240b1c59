/// What consecutive tokens do to a state is the map h -> factor h + addend, channel by channel; the state before some
/// tokens is the composition of all maps before them. Within a tile the maps of its strips are exchanged through shared
/// memory; how tiles exchange theirs is said in clusters.h and look_back.h, of which a kernel includes one. Either has
///
///     Shared        what the threads of a block leave each other
///     start         every thread calls it first
///     first_tile    the block's first tile, for one thread
///     take_tile     the one after another, before a `sync`, and
///     place_tile    its addresses, after it
///     join          the states before each strip's rows
#pragma once

#include "../portable/math.h"
#include "tile.h"

namespace forge::cuda {

/// h -> factor h + addend; of a running maximum, h -> max(h + factor, addend).
struct alignas(8) Map {
    float factor, addend;
};
static_assert(sizeof(Map) == kMapBytes, "the launch reserves another size");

/// What maps of states are, of which some, as bits, are running maxima.
template <unsigned MAXIMA>
struct Maps {
    FORGE_DEVICE static bool is_maximum(int state) { return (MAXIMA >> state & 1) != 0; }

    /// The factor with which nothing is left of a state, and the map that leaves it as it is.
    FORGE_DEVICE static float forgotten(int state) { return is_maximum(state) ? -__builtin_inff() : 0.0f; }
    FORGE_DEVICE static Map nothing_done(int state) {
        return is_maximum(state) ? Map{0.0f, -__builtin_inff()} : Map{1.0f, 0.0f};
    }

    FORGE_DEVICE static Map then(int state, const Map& first, const Map& second) {
        if (is_maximum(state))
            return {second.factor + first.factor, scalar::maximum(second.factor + first.addend, second.addend)};
        return {second.factor * first.factor, second.factor * first.addend + second.addend};
    }

    /// A factor of 0 forgets the state whatever it was.
    FORGE_DEVICE static float apply(int state, const Map& map, float h) {
        if (map.factor == forgotten(state)) return map.addend;
        return is_maximum(state) ? scalar::maximum(h + map.factor, map.addend) : map.factor * h + map.addend;
    }
};

/// What strips have added to sums.
template <int SUMS>
struct SumsOfStrips {
    float sums[SUMS][kStrips][kTileChannels];
};
template <>
struct SumsOfStrips<0> {};

/// `TENSORS` is how many token tensors the kernel reads and writes.
template <int STATES, int TENSORS, unsigned MAXIMA, int SUMS>
struct SharedByStrips : Maps<MAXIMA>, SumsOfStrips<SUMS> {
    Places<TENSORS> places[kPlaces];
    Map strips[STATES][kStrips][kTileChannels];
    float before[STATES][kStrips][kTileChannels];  ///< each strip's states
};

/// Where the states of a sequence come from and go to, in the call.
struct StateOf {
    int initial, final;
};

/// Whether the call takes any of the final states.
template <int STATES>
FORGE_DEVICE bool are_wanted(const Call& call, const StateOf (&states)[STATES]) {
    bool any = false;
#pragma unroll
    for (int s = 0; s < STATES; ++s) any = any || call.tensors[states[s].final].data;
    return any;
}

/// This thread's map of a state over its rows, for `join`.
template <Order ORDER = Order::Forwards, class SHARED>
FORGE_DEVICE void put_map(SHARED& shared, int state, const vec& factor, const vec& addend) {
    float4* const to = reinterpret_cast<float4*>(&shared.strips[state][strip_in_order<ORDER>()][strip_channel()]);
    to[0] = make_float4(factor.x[0], addend.x[0], factor.x[1], addend.x[1]);
    to[1] = make_float4(factor.x[2], addend.x[2], factor.x[3], addend.x[3]);
}

/// The state before this thread's rows, after `join`.
template <Order ORDER = Order::Forwards, class SHARED>
FORGE_DEVICE vec state_before(const SHARED& shared, int state) {
    return load(&shared.before[state][strip_in_order<ORDER>()][strip_channel()]);
}

namespace detail {

/// Strips whose maps are read before any is used: their latencies are those of one.
constexpr int kBatch = min(kStrips, 8);

/// The state before the first token of a sequence.
FORGE_DEVICE float initial_state(const Call& call, int tensor, const Tile& at, int channel, int channels) {
    const float* const from = state_block<const float>(call, tensor, at);
    const Size c = at.tile * kTileChannels + channel;
    return from && c < channels ? from[c * channel_step(call.tensors[tensor])] : 0.0f;
}

/// A channel's maps over strips, the one after another.
template <class SHARED, class USE>
FORGE_DEVICE void each_map(const SHARED& shared, int state, int channel, USE use) {
#pragma unroll
    for (int first = 0; first < kStrips; first += kBatch) {
        Map map[kBatch];
#pragma unroll
        for (int s = 0; s < kBatch; ++s) map[s] = shared.strips[state][first + s][channel];
#pragma unroll
        for (int s = 0; s < kBatch; ++s) use(first + s, map[s]);
    }
}

/// The map of a channel over the whole tile.
template <class SHARED>
FORGE_DEVICE Map whole_map(const SHARED& shared, int state, int channel) {
    Map whole = SHARED::nothing_done(state);
    each_map(shared, state, channel,
             [&](int strip, Map map) { whole = strip == 0 ? map : SHARED::then(state, whole, map); });
    return whole;
}

/// From a channel's state before the tile to those before each strip's rows; that after the tile.
template <class SHARED>
FORGE_DEVICE float pass_on(SHARED& shared, int state, int channel, float h) {
    each_map(shared, state, channel, [&](int strip, Map map) {
        shared.before[state][strip][channel] = h;
        h = SHARED::apply(state, map, h);
    });
    return h;
}

}  // namespace detail

}  // namespace forge::cuda
