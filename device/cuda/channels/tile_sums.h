/// Sums over all tokens of a sequence, as gradients of inputs per head are: each thread adds up its tokens', the strips
/// of a tile theirs, and a kernel behind those of the tokens what tiles have left in the workspace, always in the same
/// order.
#pragma once

#include "map.h"

namespace forge::cuda {

/// What this thread's tokens add to a sum, for `store_sum`.
template <class SHARED>
FORGE_DEVICE void put_sum(SHARED& shared, int sum, const vec& x) {
    store(&shared.sums[sum][strip()][strip_channel()], x);
}

/// Where the first strip of a tile has `floats` in the workspace: what all of the tile's have added, after a sync.
template <class SHARED>
FORGE_DEVICE void store_sum(const SHARED& shared, int sum, float* spill, const Call& call, const Tile& at, int floats,
                            int channels) {
    if (at.idle) return;
    for (int c = thread(); c < kTileChannels; c += kThreads) {
        const Part first{at.row, 1, static_cast<int>(at.tile) * kTileChannels + c, 1};
        if (first.channel >= channels) break;
        float all = 0.0f;
#pragma unroll 8
        for (int s = 0; s < kStrips; ++s) all += shared.sums[sum][s][c];
        *saved_state(spill, call, at, first, floats) = all;
    }
}

constexpr int kSumChannels = 64, kSumSlices = kThreads / kSumChannels;
static_assert(kThreads % kSumChannels == 0, "threads that sum have a slice of the tiles each");

/// The sum of what a sequence's tiles have left, onto what the state was: one channel after another or, of NUMBERS, all
/// of a head's together; of a row of a matrix, if one is named, whose part of the workspace begins at `spill`. By a
/// block of threads, with `scratch` for a number of each.
template <bool NUMBER>
FORGE_DEVICE void sum_tiles(float* scratch, const Call& call, const Task& at, const float* spill, int floats,
                            int channels, int initial, int final, int row = kNoRow) {
    float* to = state_block<float>(call, final, at);
    if (!to) return;
    const float* so_far = state_block<const float>(call, initial, at);
    const Size read_step = channel_step(call.tensors[initial], row != kNoRow),
               written_step = channel_step(call.tensors[final], row != kNoRow);
    to += before_row(call.tensors[final], row);
    if (so_far) so_far += before_row(call.tensors[initial], row);
    const Size tiles = (at.tokens + kTileRows - 1) / kTileRows, step = kStrips * call.heads * floats;
    const float* const from = spill + (first_block(call, at.sequence, kRows) * call.heads + at.head) * floats;
    const int slice = thread() / kSumChannels, own = thread() % kSumChannels;
    const auto all_slices = [&](int at_channel) {
        float sum = 0.0f;
        for (int s = 0; s < kSumSlices; ++s) sum += scratch[s * kSumChannels + at_channel];
        return sum;
    };
    float number = 0.0f;
    for (int first = 0; first < channels; first += kSumChannels) {
        const int c = first + own;
        float sum = 0.0f;
        if (c < channels) {
#pragma unroll 4
            for (Size tile = slice; tile < tiles; tile += kSumSlices) sum += from[tile * step + c];
        }
        number += sum;
        if (NUMBER) continue;
        scratch[thread()] = sum;
        sync();
        if (slice == 0 && c < channels) {
            to[c * written_step] = (so_far ? so_far[c * read_step] : 0.0f) + all_slices(own);
        }
        sync();
    }
    if (!NUMBER) return;
    scratch[thread()] = number;
    sync();
    if (thread() != 0) return;
    float sum = 0.0f;
    for (int c = 0; c < kSumChannels; ++c) sum += all_slices(c);
    *to = (so_far ? *so_far : 0.0f) + sum;
}

}  // namespace forge::cuda
