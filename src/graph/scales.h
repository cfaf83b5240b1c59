/// Matrices that are scaled along one axis: x * r[:, None], x * c[None, :], x * n.
#pragma once

#include <optional>

#include "ir/function.h"

namespace forge::graph {

/// The axis of a matrix along which a value that broadcasts to it changes: 0, 1, -1 for a number; nullopt for a matrix.
std::optional<int> scale_axis(const ir::Type& type);

struct Scaled {
    ir::ValueId matrix = ir::kNoValue, scale = ir::kNoValue;
    int axis = -1;  ///< of the scale
};
/// The value as a matrix of its own shape times a scale; nullopt if it is none.
std::optional<Scaled> scaled(const ir::Function& fn, ir::ValueId v);

/// A matrix that is a column [C, 1] times a vector [N].
struct OuterProduct {
    ir::ValueId column = ir::kNoValue, vector = ir::kNoValue;
    bool column_first = true;
};
std::optional<OuterProduct> outer_product(const ir::Function& fn, ir::ValueId v);

}  // namespace forge::graph
