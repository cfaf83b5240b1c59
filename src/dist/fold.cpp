#include "dist/fold.h"

#include <algorithm>
#include <numeric>

#include "forge/error.h"

namespace forge::dist::detail {
namespace {

using Map = Carried::Map;

/// after = map * before + added, where an axis of length 1 of `map` stands for the whole axis.
void apply_factors(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& map_shape,
                   std::int64_t rows, const float* map, const float* before, const float* added, float* after) {
    if (shape.empty()) {
        after[0] = map[0] * before[0] + added[0];
        return;
    }
    const std::size_t last = shape.size() - 1;
    const std::int64_t width = last == 0 ? rows : shape[last], step = map_shape[last] == 1 ? 0 : 1;
    std::int64_t outer = last == 0 ? 1 : rows;
    for (std::size_t axis = 1; axis < last; ++axis) outer *= shape[axis];
    for (std::int64_t o = 0; o < outer; ++o) {
        std::int64_t rest = o, stride = map_shape[last], from = 0;
        for (std::size_t axis = last; axis-- > 0;) {
            const std::int64_t size = axis == 0 ? rows : shape[axis], index = rest % size;
            rest /= size;
            if (map_shape[axis] != 1) from += index * stride;
            stride *= map_shape[axis];
        }
        for (std::int64_t i = 0; i < width; ++i)
            after[o * width + i] = map[from + i * step] * before[o * width + i] + added[o * width + i];
    }
}

/// c = a @ b + c; [rows, inner] and [inner, columns].
void multiply_add(const float* a, const float* b, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                  float* c) {
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t k = 0; k < inner; ++k) {
            const float factor = a[i * inner + k];
            for (std::int64_t j = 0; j < columns; ++j) c[i * columns + j] += factor * b[k * columns + j];
        }
}

/// A block of the workspace, row-major.
std::vector<float> dense_copy(const float* block, const std::vector<std::int64_t>& shape,
                              const std::vector<std::int64_t>& strides) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> copy(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i, at = 0;
        for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) at += rest % shape[axis] * strides[axis];
        copy[static_cast<std::size_t>(i)] = block[at];
    }
    return copy;
}

/// The transition of two parts, of which `first` comes first.
std::vector<float> composed(const Field& field, const std::vector<float>& first, const std::vector<float>& second) {
    std::vector<float> both(first.size());
    if (field.map == Map::Factors) {
        std::transform(first.begin(), first.end(), second.begin(), both.begin(), std::multiplies<>());
    } else {
        const std::int64_t n = field.map_shape[0];
        const bool left = field.map == Map::Left;
        multiply_add(left ? second.data() : first.data(), left ? first.data() : second.data(), n, n, n, both.data());
    }
    return both;
}

void fold_lane(const Fold& f, std::int64_t lane) {
    const Field& field = f.field;
    const std::int64_t count = field.block(), rows = field.shape.empty() ? 1 : field.shape[0];
    std::vector<float> sum(static_cast<std::size_t>(count)), after(sum.size()), map, transition;
    if (f.begun) std::copy_n(f.begun + lane * count, count, sum.begin());
    for (std::int64_t i = 0; i < f.count; ++i) {
        const std::int64_t block = (f.first + lane / f.heads * f.count + i) * f.heads + lane % f.heads;
        const std::vector<float> added = dense_copy(f.added + block * f.added_block, field.shape, f.added_strides);
        if (f.map) map = dense_copy(f.map + block * f.map_block, field.map_shape, f.map_strides);
        apply(field, rows, count, map.data(), sum.data(), added.data(), after.data());
        sum.swap(after);
        if (f.map && f.transition) transition = i == 0 ? map : composed(field, transition, map);
    }
    std::copy(sum.begin(), sum.end(), f.state + lane * count);
    if (f.map && f.transition) std::copy(transition.begin(), transition.end(), f.transition + lane * field.map_block());
}

}  // namespace

void apply(const Field& field, std::int64_t rows, std::int64_t count, const float* map, const float* before,
           const float* added, float* after) {
    switch (field.map) {
        case Map::Identity:
            for (std::int64_t i = 0; i < count; ++i) after[i] = before[i] + added[i];
            return;
        case Map::Factors:
            apply_factors(field.shape, field.map_shape, rows, map, before, added, after);
            return;
        case Map::Left:
        case Map::Right: {
            std::copy_n(added, count, after);
            if (field.map == Map::Left)
                multiply_add(map, before, field.shape[0], field.shape[0], field.shape[1], after);
            else multiply_add(before, map, field.shape[0], field.shape[1], field.shape[1], after);
            return;
        }
        case Map::None:
            break;
    }
    throw InternalError("exchange: a state without a summary");
}

void fold_on_host(const Fold& fold) {
    for (std::int64_t lane = 0; lane < fold.field.lanes; ++lane) fold_lane(fold, lane);
}

}  // namespace forge::dist::detail
