/// What a call leaves to the next one where a program reads the token before: the last rows of its inputs.
#pragma once

#include "../common/call.h"
#include "rows.h"

namespace forge::cpu {

/// What an input has for a token: so many rows, each with the axes behind the heads.
struct TokenShape {
    int rows, axes, size[4];

    [[nodiscard]] int width() const {
        int n = 1;
        for (int axis = 0; axis < axes; ++axis) n *= size[axis];
        return n;
    }
};

/// A sequence without tokens returns what it was given, or the pad. Heads that share rows leave them to the first.
template <class T>
inline void store_last_rows(const device::Call& call, int input, int initial, int final, const device::Task& at,
                            const TokenShape& shape, float pad) {
    using device::CallTensor, device::Size, device::last_rows, device::token_rows;
    const CallTensor &from = call.tensors[input], &kept = call.tensors[initial], &next = call.tensors[final];
    float* const to = last_rows<float>(call, final, at);
    if (!to || at.head % from.group != 0) return;
    const float* const before = last_rows<const float>(call, initial, at);
    const T* const last = token_rows<const T>(call, input, at, shape.rows) + (at.tokens - 1) * shape.rows * from.token;
    const int width = shape.width(), first = shape.rows > 1 ? 1 : 0;  // a state's axes behind that of the rows
    for (int i = 0; i < shape.rows * width; ++i) {
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

}  // namespace forge::cpu
