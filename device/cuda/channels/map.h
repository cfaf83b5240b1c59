/// What consecutive tokens do to a state is the map h -> factor h + addend, channel by channel; the state before some
/// tokens is the composition of all maps before them. Within a tile the maps of its strips are exchanged through shared
/// memory; how tiles exchange theirs is said in clusters.h and look_back.h, of which a kernel includes one. Either has
///
///     Shared        what the threads of a block leave each other
///     start         every thread calls it first
///     first_tile    the block's first tile, for one thread
///     take_tile     the one after another, before a `sync`, and
///     place_tile    its addresses, after it
///     join          the states before the tile, and the maps of its warps before each
///
/// A warp composes the maps of its strips, a thread per channel those of the warps, and each thread takes the state
/// before the tile through the maps before its own strip: no chain of operations is longer than a block has warps.
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

/// `TENSORS` is how many token tensors the kernel reads and writes. States that are matrices are joined row by row.
template <int STATES, int TENSORS, unsigned MAXIMA, int SUMS>
struct SharedByStrips : Maps<MAXIMA>, SumsOfStrips<SUMS> {
    Places<TENSORS> places[kPlaces];
    /// A strip's map; of a warp's last one all of that warp and, once they are joined, of all warps before it.
    Map strips[STATES][kStrips][kTileChannels];
    float before[STATES][kTileChannels];  ///< the states before the tile
};

/// Where the states of a sequence come from and go to, in the call.
struct StateOf {
    int initial, final;
};

/// How often a block has joined states before, and which of a matrix's rows it joins now.
struct Round {
    int number, row = kNoRow;
    FORGE_DEVICE int place() const { return row == kNoRow ? 0 : row; }
};

/// Whether the call takes any of the final states.
template <int STATES>
FORGE_DEVICE bool are_wanted(const Call& call, const StateOf (&states)[STATES]) {
    bool any = false;
#pragma unroll
    for (int s = 0; s < STATES; ++s) any = any || call.tensors[states[s].final].data;
    return any;
}

namespace detail {

constexpr int kStripsOfWarp = kLanes / kStripLanes;
static_assert(kStripsOfWarp == 1 || kStripsOfWarp == 2, "a warp composes the maps of two strips at most");

/// A thread's maps, of kWidth channels.
struct MapsOfThread {
    vec factor, addend;
};
FORGE_DEVICE MapsOfThread load_maps(const Map* from) {
    const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
    return {{{a.x, a.z, b.x, b.z}}, {{a.y, a.w, b.y, b.w}}};
}
FORGE_DEVICE void store_maps(Map* to, const MapsOfThread& maps) {
    const vec &f = maps.factor, &a = maps.addend;
    reinterpret_cast<float4*>(to)[0] = make_float4(f.x[0], a.x[0], f.x[1], a.x[1]);
    reinterpret_cast<float4*>(to)[1] = make_float4(f.x[2], a.x[2], f.x[3], a.x[3]);
}

}  // namespace detail

/// This thread's map of a state over its rows, for `join`. What it overwrites only threads of its warp have read since.
template <Order ORDER = Order::Forwards, class SHARED>
FORGE_DEVICE void put_map(SHARED& shared, int state, const vec& factor, const vec& addend) {
    using namespace detail;
    const int strip = strip_in_order<ORDER>();
    MapsOfThread maps{factor, addend};
    if constexpr (kStripsOfWarp == 2) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            const Map first = {__shfl_xor_sync(kAllLanes, factor.x[i], kStripLanes),
                               __shfl_xor_sync(kAllLanes, addend.x[i], kStripLanes)};
            const Map both = SHARED::then(state, first, {factor.x[i], addend.x[i]});
            if (strip % 2 == 1) maps.factor.x[i] = both.factor, maps.addend.x[i] = both.addend;
        }
    } else {
        __syncwarp();
    }
    store_maps(&shared.strips[state][strip][strip_channel()], maps);
}

/// The state before this thread's rows, after `join`.
template <Order ORDER = Order::Forwards, class SHARED>
FORGE_DEVICE vec state_before(const SHARED& shared, int state) {
    using namespace detail;
    const int strip = strip_in_order<ORDER>(), last = strip | (kStripsOfWarp - 1);
    const MapsOfThread warps = load_maps(&shared.strips[state][last][strip_channel()]);
    vec h = load(&shared.before[state][strip_channel()]);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) h.x[i] = SHARED::apply(state, {warps.factor.x[i], warps.addend.x[i]}, h.x[i]);
    if (kStripsOfWarp == 1 || strip % 2 == 0) return h;
    const MapsOfThread first = load_maps(&shared.strips[state][strip - 1][strip_channel()]);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) h.x[i] = SHARED::apply(state, {first.factor.x[i], first.addend.x[i]}, h.x[i]);
    return h;
}

namespace detail {

/// Warps whose maps are read before any is used: their latencies are those of one.
constexpr int kBatch = min(kWarps, 8);

/// The state before the first token of a sequence.
FORGE_DEVICE float initial_state(const Call& call, int tensor, const Tile& at, int row, int channel, int channels) {
    const CallTensor& t = call.tensors[tensor];
    const float* const from = state_block<const float>(call, tensor, at);
    const Size c = at.tile * kTileChannels + channel;
    return from && c < channels ? from[before_row(t, row) + c * channel_step(t, row != kNoRow)] : 0.0f;
}

/// A channel's map over the whole tile; in its warps' places those of all warps before each.
template <class SHARED>
FORGE_DEVICE Map join_warps(SHARED& shared, int state, int channel) {
    const auto map_of = [&](int warp) -> Map& {
        return shared.strips[state][warp * kStripsOfWarp + kStripsOfWarp - 1][channel];
    };
    Map whole = SHARED::nothing_done(state);
#pragma unroll
    for (int first = 0; first < kWarps; first += kBatch) {
        Map maps[kBatch];
#pragma unroll
        for (int w = 0; w < kBatch; ++w) maps[w] = map_of(first + w);
#pragma unroll
        for (int w = 0; w < kBatch; ++w) {
            map_of(first + w) = whole;
            whole = first + w == 0 ? maps[w] : SHARED::then(state, whole, maps[w]);
        }
    }
    return whole;
}

}  // namespace detail

}  // namespace forge::cuda
