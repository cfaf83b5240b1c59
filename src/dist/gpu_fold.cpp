// The summaries of a rank's segments as one, by a kernel.
#include <algorithm>

#include "dist/gpu.h"

namespace forge::dist::detail {
namespace {

namespace ranks = cuda::ranks;

bool is_multiple(const void* address, std::uintptr_t of) {
    return !address || reinterpret_cast<std::uintptr_t>(address) % of == 0;
}

/// Whether four numbers of the last axis are side by side wherever they are read and written.
bool by_fours(const Fold& from, const ranks::Fold& f) {
    if (f.axes == 0 || f.shape[f.axes - 1] % 4 != 0 || f.stride[f.axes - 1] != 1 || f.added_block % 4 != 0)
        return false;
    for (int axis = 0; axis + 1 < f.axes; ++axis)
        if (f.stride[axis] % 4 != 0) return false;
    return is_multiple(from.added, 16) && is_multiple(from.begun, 16) && is_multiple(from.state, 16);
}

ranks::Fold described_fold(const Fold& from) {
    const Field& field = from.field;
    ranks::Fold f{};
    if (field.shape.size() > ranks::kMaxAxes) throw RuntimeError("ranks: a state of so many axes is not for GPUs");
    f.added = from.added, f.map = from.map, f.begun = from.begun;
    f.state = from.state, f.transition = from.map ? from.transition : nullptr;
    f.map_kind = field.map == Carried::Map::Left    ? ranks::kLeft
                 : field.map == Carried::Map::Right ? ranks::kRight
                 : from.map                         ? ranks::kFactors
                                                    : ranks::kIdentity;
    f.lanes = field.lanes, f.heads = from.heads, f.first = from.first, f.count = from.count;
    f.block = field.block(), f.map_size = field.map_block();
    f.added_block = from.added_block, f.map_block = from.map_block;
    f.axes = static_cast<int>(field.shape.size()), f.map_axes = static_cast<int>(field.map_shape.size());
    for (std::size_t axis = 0; axis < field.shape.size(); ++axis) {
        f.shape[axis] = static_cast<int>(field.shape[axis]), f.stride[axis] = from.added_strides[axis];
        if (!from.map) continue;
        f.map_shape[axis] = static_cast<int>(field.map_shape[axis]), f.map_stride[axis] = from.map_strides[axis];
        f.step[axis] = field.map_shape[axis] == 1 ? 0 : from.map_strides[axis];
    }
    f.four = by_fours(from, f) ? 1 : 0;
    return f;
}

bool is_matrix(const Field& field) { return field.map == Carried::Map::Left || field.map == Carried::Map::Right; }

/// What a block of threads has: columns of a state before and after a segment.
std::int64_t bytes_of_columns(const Field& field) {
    return 2 * field.map_shape[0] * ranks::kColumns * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

bool Gpu::folds(const Field& field) const {
    if (field.map == Carried::Map::None || field.shape.size() > ranks::kMaxAxes) return false;
    return !is_matrix(field) || bytes_of_columns(field) <= device_.shared_bytes - 1024;
}

void Gpu::fold(const Fold& from) {
    ranks::Fold f = described_fold(from);
    const std::int64_t numbers = f.lanes * f.block, items = f.four ? numbers / 4 : numbers;
    if (items == 0) return;
    if (is_matrix(from.field)) {
        const std::int64_t sides = (from.field.shape[0] + from.field.shape[1]) / ranks::kColumns + 2;
        const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(f.lanes * sides, 4 * device_.multiprocessors));
        return launch(fold_, blocks, static_cast<unsigned>(bytes_of_columns(from.field)), &f);
    }
    constexpr std::int64_t kMostBlocks = 1024;
    launch(fold_, static_cast<unsigned>(std::min((items + ranks::kThreads - 1) / ranks::kThreads, kMostBlocks)), 0, &f);
}

}  // namespace forge::dist::detail
