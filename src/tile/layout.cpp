#include "tile/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "forge/error.h"
#include "support/checked.h"
#include "tile/lower.h"

namespace forge::tile {
namespace {

using ir::Along;
using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

std::int64_t round_up(std::int64_t n, std::int64_t m) { return (n + m - 1) / m * m; }

/// Floats from one row to the next.
std::int64_t padded_row(std::int64_t columns, int rank, const Rules& rules) {
    const std::int64_t row = round_up(columns, rules.vector_width);
    const bool even = row / rules.vector_width % 2 == 0;
    return rules.shared_memory && rank > 1 && even ? row + rules.vector_width : row;
}

}  // namespace

std::int64_t size_of(const ir::Type& type, int axis) { return type.shape[static_cast<std::size_t>(axis)].factor; }

std::vector<std::int64_t> tile_strides(const ir::Type& type, const Rules& rules) {
    std::vector<std::int64_t> strides(type.shape.size());
    std::int64_t next = 1;
    for (int axis = type.rank() - 1; axis >= 0; --axis) {
        strides[static_cast<std::size_t>(axis)] = next;
        next = axis == type.rank() - 1
                   ? padded_row(size_of(type, axis), type.rank(), rules)
                   : (support::Checked(next) * size_of(type, axis)).saturated();  // tile_floats refuses what is beyond
    }
    return strides;
}

std::int64_t tile_floats(const ir::Type& type, const Rules& rules) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // kernels count with int
    support::Checked floats =
        type.rank() == 0 ? rules.vector_width : padded_row(size_of(type, type.rank() - 1), type.rank(), rules);
    for (int axis = 0; axis + 1 < type.rank(); ++axis) floats = floats * size_of(type, axis);
    if (const auto count = floats.at_most(kMost)) return *count;
    throw RuntimeError(fmt::format("sizes: expected values of at most {} numbers, got {}", kMost, to_string(type)));
}

std::int64_t work_floats(const ir::Function& fn, ir::ValueId v, const Rules& rules) {
    const Op& op = fn.op(v);
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) { return rows * padded_row(columns, 2, rules); };
    constexpr std::int64_t kDecayBlock = 16;
    const bool blocked = op.type.rank() == 2 && size_of(op.type, 0) > kDecayBlock;
    if (!rules.shared_memory || !blocked) return 0;
    if (op.code == Opcode::DecayMatmul)
        return matrix(round_up(size_of(op.type, 0), kDecayBlock), size_of(fn.op(op.args[0]).type, 1));
    if (op.code == Opcode::DecayApply) return matrix(size_of(op.type, 0), size_of(op.type, 1));
    return 0;
}

Layout view_layout(const Op& op, const ir::Type& from, const Layout& base) {
    Layout l = base;
    auto& s = l.strides;
    const auto at = [&](std::int64_t axis) { return s.begin() + axis; };
    const auto from_start = [&](std::int64_t index) {
        return index < 0 ? index + size_of(from, static_cast<int>(op.attrs.dim)) : index;
    };
    switch (ir::along(op.code)) {
        case Along::Permuted:
            for (std::size_t i = 0; i < s.size(); ++i)
                l.strides[i] = base.strides[static_cast<std::size_t>(op.attrs.perm[i])];
            return l;
        case Along::Inserted:
            s.insert(at(op.attrs.dim), 0);
            return l;
        case Along::Removed:
        case Along::Selected:
            l.offset += from_start(op.attrs.start) * *at(op.attrs.dim);
            s.erase(at(op.attrs.dim));
            return l;
        case Along::Cut: {
            const bool part = op.code == Opcode::Part;  // which counts in parts
            const std::int64_t first =
                part ? op.attrs.start * size_of(op.type, static_cast<int>(op.attrs.dim)) : from_start(op.attrs.start);
            l.offset += first * *at(op.attrs.dim);
            *at(op.attrs.dim) *= op.attrs.step;
            return l;
        }
        case Along::Broadcast: {
            const std::size_t missing = op.type.shape.size() - from.shape.size();
            s.insert(s.begin(), missing, 0);
            for (std::size_t i = missing; i < s.size(); ++i)
                if (from.shape[i - missing] == Dim(1)) s[i] = 0;
            return l;
        }
        case Along::Leaf:
        case Along::Place:
        case Along::Pointwise:
        case Along::Triangle:
        case Along::Copied:
        case Along::Shifted:
        case Along::Reduced:
        case Along::Scanned:
        case Along::RowScan:
        case Along::Normalised:
        case Along::Repeated:
        case Along::Joined:
        case Along::Contracted:
        case Along::Matrix:
        case Along::Pairs:
        case Along::Rows:
            break;
    }
    throw InternalError(std::string("layout: not a view: ") + ir::info(op.code).name);
}

Layout eventual_layout(const ir::Function& fn, ValueId v, const Rules& rules) {
    const Op& op = fn.op(v);
    if (!ir::is_view(op.code)) return {Layout::Space::Tile, 0, tile_strides(op.type, rules)};
    return view_layout(op, fn.op(op.args[0]).type, eventual_layout(fn, op.args[0], rules));
}

bool contiguous_rows(const ir::Type& type, const Layout& layout) {
    return type.rank() == 0 || layout.strides.back() == 1;
}

}  // namespace forge::tile
