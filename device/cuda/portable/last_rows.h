/// What is stored after all other kernels, as they may read what lies there: the last rows of inputs, where a program
/// reads the token before, and states that every tile of an axis has computed.
#pragma once

#include "call.h"
#include "io.h"

namespace forge::cuda {

/// What an input has for a token: so many rows, each with the axes behind the heads.
struct TokenShape {
    int rows, axes, size[4];

    FORGE_DEVICE int width() const {
        int n = 1;
        for (int axis = 0; axis < axes; ++axis) n *= size[axis];
        return n;
    }
};

/// A sequence without tokens returns what it was given, or the pad. Heads that share rows leave them to the first.
template <class T>
FORGE_DEVICE void store_last_rows(const Call& call, int input, int initial, int final, const Task& at,
                                  const TokenShape& shape, float pad) {
    const CallTensor &from = call.tensors[input], &kept = call.tensors[initial], &next = call.tensors[final];
    float* const to = last_rows<float>(call, final, at);
    if (!to || at.head % from.group != 0) return;
    const float* const before = last_rows<const float>(call, initial, at);
    const T* const last = token_rows<const T>(call, input, at, shape.rows) + (at.tokens - 1) * shape.rows * from.token;
    const int width = shape.width(), first = shape.rows > 1 ? 1 : 0;  // a state's axes behind that of the rows
    for (int i = thread(); i < shape.rows * width; i += kThreads) {
        const int row = i / width;
        Size source = row * from.token, own = row * kept.dim[0] * first, target = row * next.dim[0] * first;
        for (int axis = shape.axes - 1, rest = i % width; axis >= 0; --axis) {
            const int place = rest % shape.size[axis];
            rest /= shape.size[axis];
            source += place * from.dim[axis];
            own += place * kept.dim[axis + first], target += place * next.dim[axis + first];
        }
        to[target] = at.tokens > 0 ? load_number(last + source) : before ? before[own] : pad;
    }
}

/// A state as it lies in the workspace.
struct LateState {
    int axes, size[4];
    Size strides[4];
};

FORGE_DEVICE void store_late_state(const Call& call, int final, const Task& at, const float* from,
                                   const LateState& state) {
    float* const to = state_block<float>(call, final, at);
    if (!to) return;
    int numbers = 1;
    for (int axis = 0; axis < state.axes; ++axis) numbers *= state.size[axis];
    for (int i = thread(); i < numbers; i += kThreads) {
        Size source = 0, target = 0;
        for (int axis = state.axes - 1, rest = i; axis >= 0; --axis) {
            const int place = rest % state.size[axis];
            rest /= state.size[axis];
            source += place * state.strides[axis], target += place * call.tensors[final].dim[axis];
        }
        to[target] = from[source];
    }
}

}  // namespace forge::cuda
