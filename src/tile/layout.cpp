#include "tile/layout.h"

#include <algorithm>

#include "forge/error.h"
#include "tile/lower.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

std::int64_t round_up(std::int64_t n, std::int64_t m) { return (n + m - 1) / m * m; }

}  // namespace

std::int64_t size_of(const ir::Type& type, int axis) { return type.shape[static_cast<std::size_t>(axis)].factor; }

std::vector<std::int64_t> tile_strides(const ir::Type& type, std::int64_t vector_width) {
    std::vector<std::int64_t> strides(type.shape.size());
    std::int64_t next = 1;
    for (int axis = type.rank() - 1; axis >= 0; --axis) {
        strides[static_cast<std::size_t>(axis)] = next;
        next = axis == type.rank() - 1 ? round_up(size_of(type, axis), vector_width) : next * size_of(type, axis);
    }
    return strides;
}

std::int64_t tile_floats(const ir::Type& type, std::int64_t vector_width) {
    std::int64_t floats = type.rank() == 0 ? vector_width : round_up(size_of(type, type.rank() - 1), vector_width);
    for (int axis = 0; axis + 1 < type.rank(); ++axis) floats *= size_of(type, axis);
    return floats;
}

Layout view_layout(const Op& op, const ir::Type& from, const Layout& base) {
    Layout l = base;
    auto& s = l.strides;
    const auto at = [&](std::int64_t axis) { return s.begin() + axis; };
    switch (op.code) {
        case Opcode::Permute:
            for (std::size_t i = 0; i < s.size(); ++i) l.strides[i] = base.strides[static_cast<std::size_t>(op.attrs.perm[i])];
            return l;
        case Opcode::Unsqueeze: s.insert(at(op.attrs.dim), 0); return l;
        case Opcode::Squeeze: s.erase(at(op.attrs.dim)); return l;
        case Opcode::Select: {
            const std::int64_t n = size_of(from, static_cast<int>(op.attrs.dim)), index = op.attrs.start < 0 ? op.attrs.start + n : op.attrs.start;
            l.offset += index * *at(op.attrs.dim);
            s.erase(at(op.attrs.dim));
            return l;
        }
        case Opcode::Slice:
            l.offset += op.attrs.start * *at(op.attrs.dim);
            *at(op.attrs.dim) *= op.attrs.step;
            return l;
        case Opcode::Expand: {
            const std::size_t missing = op.type.shape.size() - from.shape.size();
            s.insert(s.begin(), missing, 0);
            for (std::size_t i = missing; i < s.size(); ++i)
                if (from.shape[i - missing] == Dim(1)) s[i] = 0;
            return l;
        }
        default: throw InternalError(std::string("layout: not a view: ") + ir::info(op.code).name);
    }
}

bool contiguous_rows(const ir::Type& type, const Layout& layout) {
    return type.rank() == 0 || layout.strides.back() == 1;
}

}  // namespace forge::tile
