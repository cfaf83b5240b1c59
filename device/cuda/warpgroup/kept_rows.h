/// Where the rows of a task's token tensors begin: worked out at once, by a thread each, and kept in shared memory, so
/// that an address takes no registers before it is read.
#pragma once

#include "../portable/call.h"
#include "../portable/thread.h"

namespace forge::cuda {

/// A token tensor of a kernel: its place in the call, the bytes of its numbers, its rows per token, and the numbers of
/// its axis `dim` that a tile has; 0: all.
struct RowsOf {
    int tensor, bytes, per_token = 1, part = 0, dim = 0;
};

/// kept[n]: of tensors[n], as token_rows() gives it.
template <int N>
FORGE_DEVICE void keep_rows(const Call& call, const Task& at, const RowsOf (&tensors)[N], float* kept) {
    static_assert(N <= kThreads);
    if (thread() < N) {
        const RowsOf of = tensors[thread()];
        const CallTensor& t = call.tensors[of.tensor];
        const Size first = at.sequence * t.sequence + at.start * of.per_token * t.token +
                           quotient(at.head, t.group) * t.head + at.tile * of.part * t.dim[of.dim];
        reinterpret_cast<char**>(kept)[thread()] = static_cast<char*>(t.data) + first * of.bytes;
    }
    sync();
}

/// The rows of one tensor.
template <class T>
struct KeptRows {
    const float* address;
    FORGE_DEVICE T* operator+(Size numbers) const { return *reinterpret_cast<T* const*>(address) + numbers; }
};

}  // namespace forge::cuda
