/// States that are worked on where they lie: with few tokens per call, to move them would be most of the work.
#pragma once

#include "../common/call.h"
#include "vec.h"

namespace forge::cpu {

/// The final state's place if its rows lie there as in a tile, [M, N] and dense, else `tile`. An initial state is
/// copied there; one that overlaps the place must be there already, row by row.
template <int M, int N>
inline float* state_home(const device::Call& call, int initial, int final, const device::Task& at, float* tile) {
    using device::CallTensor, device::state_block;
    float* const home = state_block<float>(call, final, at);
    const CallTensor &last = call.tensors[final], &first = call.tensors[initial];
    if (!home || last.dim[0] != N || last.dim[1] != 1) return tile;
    const float* const given = state_block<const float>(call, initial, at);
    if (!given || (given == home && first.dim[0] == N && first.dim[1] == 1)) return home;
    const bool is_dense = first.dim[0] == N && first.dim[1] == 1;
    return is_dense && (given + M * N <= home || home + M * N <= given) ? home : tile;
}

}  // namespace forge::cpu
