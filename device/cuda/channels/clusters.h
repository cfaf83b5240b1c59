/// Tiles of a sequence joined by clusters of blocks, which a Hopper GPU runs side by side: a cluster has one sequence,
/// head and channel tile, and its blocks take the tiles in turn, one each per round. In a round every block sends its
/// tile's map into the shared memory of all, and composes what has come: for the states before its own tile, and for
/// those after the round. The order of operations depends on nothing but the cluster's size, so that results are the
/// same bits from run to run.
///
/// Rounds alternate between two buffers. A block that sends for the round after the next has received the next round's
/// maps from all blocks, so that none of them still waits for, or reads, the maps of this round.
#pragma once

#include "../ptx/cluster.h"
#include "map.h"

namespace forge::cuda {

template <int STATES, int TENSORS, unsigned MAXIMA = 0, int SUMS = 0, int ROWS = 1>
struct Shared : SharedByStrips<STATES, TENSORS, MAXIMA, SUMS> {
    Map round[2][STATES][kMostBlocks][kTileChannels];  ///< of each block
    float carried[ROWS][STATES][kTileChannels];        ///< the states before the round
    ptx::Mailbox boxes[2];
};

template <class SHARED>
FORGE_DEVICE void start(SHARED& shared) {
    if (ptx::cluster_blocks() == 1) return;
    if (thread() == 0) ptx::mailbox_open(&shared.boxes[0]), ptx::mailbox_open(&shared.boxes[1]);
    ptx::cluster_arrive();
}

template <int CHANNELS, Order ORDER = Order::Forwards>
FORGE_DEVICE Tile first_tile(const Call& call) {
    const unsigned tiles = pieces(channels_of<CHANNELS>(call), kTileChannels), heads = heads_apart(call),
                   task = ptx::cluster_in_grid(), row = task / tiles, n = static_cast<unsigned>(quotient(row, heads));
    Tile at{};
    static_cast<Task&>(at) = sequence_task(call, n, row - n * heads, task % tiles);
    at.number = task;
    at.segment = ptx::block_in_cluster();
    at.block = first_block(call, n, kRows);
    place_rows<ORDER>(at);
    return at;
}

template <int CHANNELS, Order ORDER = Order::Forwards, int TENSORS>
FORGE_DEVICE void take_tile(Places<TENSORS>&, const Places<TENSORS>&, const Call&) {}

/// All blocks of a cluster have the same number of rounds. By one warp: the others are busy.
template <Order ORDER = Order::Forwards, int TENSORS>
FORGE_DEVICE void place_tile(Places<TENSORS>& next, const Places<TENSORS>& before, const Call& call,
                             const TensorOf (&tensors)[TENSORS]) {
    if (warp() != kWarps - 1) return;
    const Size blocks = ptx::cluster_blocks();
    if (lane() == 0) {
        Tile at = before.tile;
        at.segment += blocks;
        place_rows<ORDER>(at);
        at.done = (at.segment - static_cast<Size>(ptx::block_in_cluster())) * kTileRows >= at.tokens;
        next.tile = at;
    }
#pragma unroll
    for (int i = 0; i < TENSORS; ++i) {
        const Size token_bytes = call.tensors[tensors[i].tensor].token * tensors[i].rows * tensors[i].element_bytes;
        const Size step = (ORDER == Order::Forwards ? blocks : -blocks) * kTileRows * token_bytes;
        if (lane() == i % kLanes) next.first[i] = before.first[i] + step;
    }
}

/// Makes the states before the tile. All threads call it, after put_map and sync; they sync afterwards. Final
/// states are written after it, so that they may take the place of initial ones, which every block reads in its first
/// round, before it sends.
template <int STATES, int TENSORS, unsigned MAXIMA, int SUMS, int ROWS>
FORGE_DEVICE void join(Shared<STATES, TENSORS, MAXIMA, SUMS, ROWS>& shared, const Call& call, const Tile& at,
                       const Round& joined, const StateOf (&states)[STATES], int channels) {
    constexpr int kAll = STATES * kTileChannels, kEach = pieces(kAll, kThreads);  // channels of states, and a thread's
    const int blocks = static_cast<int>(ptx::cluster_blocks()), mine = static_cast<int>(ptx::block_in_cluster());
    const bool first = at.segment < blocks;
    auto& round = shared.round[joined.number % 2];
    auto& carried = shared.carried[joined.place()];
    ptx::Mailbox* const box = &shared.boxes[joined.number % 2];
    const int self = thread();
    if (first && joined.place() == 0 && blocks > 1) ptx::cluster_wait();  // they have all opened their mailboxes
    Map whole[kEach];
    if (self == 0 && blocks > 1) ptx::mailbox_expect(box, static_cast<unsigned>(blocks * kAll * sizeof(Map)));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        if (first)
            carried[state][channel] =
                detail::initial_state(call, states[state].initial, at, joined.row, channel, channels);
        whole[i] = detail::join_warps(shared, state, channel);
        if (blocks == 1) continue;
        const Map map = whole[i];
        for (int b = 0; b < blocks; ++b) ptx::send(b, &round[state][mine][channel], box, map.factor, map.addend);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int c = self + i * kThreads, state = c / kTileChannels, channel = c % kTileChannels;
        if (c >= kAll) break;
        float h = carried[state][channel], before = h;
        if (blocks > 1) {
            if (i == 0) ptx::mailbox_await(box, joined.number / 2 % 2);
            Map map[kMostBlocks];
#pragma unroll
            for (int b = 0; b < kMostBlocks; ++b)
                map[b] = round[state][b][channel];  // of blocks that are not there, too
#pragma unroll
            for (int b = 0; b < kMostBlocks; ++b) {
                if (b == mine) before = h;
                if (b < blocks) h = Maps<MAXIMA>::apply(state, map[b], h);
            }
        }
        shared.before[state][channel] = before;
        carried[state][channel] = blocks > 1 ? h : Maps<MAXIMA>::apply(state, whole[i], h);
    }
}

}  // namespace forge::cuda
