/// From a kernel's graph to its tiles: symbols become sizes, every value gets a layout (computed where it is used, or
/// held in a buffer), ops are ordered so that states may be updated in place, and buffers are shared between values
/// whose lives do not meet. The result is the same kind of function, with `Op::layout` filled in.
#pragma once

#include <map>
#include <string>

#include "ir/function.h"

namespace forge::tile {

using Sizes = std::map<std::string, std::int64_t>;

struct TileKernel {
    ir::Function fn;
    std::int64_t scratch_floats = 0;
};

/// `sizes`: of this kernel's part of the work; `whole`: of all of it, which spills are laid out for.
/// `vector_width`: floats per vector; rows of tiles are padded to it.
TileKernel lower(const ir::Function& kernel, const Sizes& sizes, const Sizes& whole, std::int64_t vector_width);

/// The type with every symbol replaced by its size.
ir::Type with_sizes(ir::Type type, const Sizes& sizes);

/// The op whose buffer a value lies in: itself, or the base of a view.
ir::ValueId buffer_of(const ir::Function& fn, ir::ValueId v);
/// The buffers that evaluating v reads, through values that are computed in place.
std::vector<ir::ValueId> tiles_read_by(const ir::Function& fn, ir::ValueId v);

std::int64_t size_of(const ir::Type& type, int axis);  ///< of a lowered type: all dimensions are constants
/// Floats that a fresh row-major tile of this type takes, and its strides, with rows padded to the vector width.
std::int64_t tile_floats(const ir::Type& type, std::int64_t vector_width);
std::vector<std::int64_t> tile_strides(const ir::Type& type, std::int64_t vector_width);

}  // namespace forge::tile
