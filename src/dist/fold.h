/// The summaries of a rank's segments, which its own call makes for itself, as the one that it tells other ranks:
/// composed in order, in the host's memory or, with the same numbers, by a kernel of a GPU (device/cuda/ranks/fold.h).
#pragma once

#include "dist/summary.h"

namespace forge::dist::detail {

/// after = D∘before + added, of `count` numbers of a lane's state, `rows` of its first axis. All dense.
void apply(const Field& field, std::int64_t rows, std::int64_t count, const float* map, const float* before,
           const float* added, float* after);

/// A state's summaries as they lie in the workspace of a call: of lane n * heads + h, those of sequence n and head h,
/// block (first + n * count + i) * heads + h has number i of `count`.
struct Fold {
    Field field;
    const float *added = nullptr, *map = nullptr;          ///< B and D (null: the identity), the first block of each
    std::int64_t added_block = 0, map_block = 0;           ///< from block to block
    std::vector<std::int64_t> added_strides, map_strides;  ///< within one, along the axes of B and D
    std::int64_t heads = 1, first = 0, count = 1;
    const float* begun = nullptr;  ///< the states that the sequences begin with here; null: zeros
    float* state = nullptr;        ///< the states after all of them, dense
    float* transition = nullptr;   ///< … and the transition of all; null: it is not asked for
};
void fold_on_host(const Fold& fold);

}  // namespace forge::dist::detail
