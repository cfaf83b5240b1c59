#include "tile/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tile/lower.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

constexpr std::int64_t kWidth = 4;       ///< floats that a thread handles at a time
constexpr std::int64_t kLeastSize = 8;   ///< of an axis, below which a matrix is as good as a vector
constexpr std::int64_t kMostDepth = 16;  ///< of an outer product
constexpr std::int64_t kMostRows = 8;    ///< vectors that one product has

/// Side by side, as reductions take powers of two.
std::int64_t lanes_of(std::int64_t columns) {
    std::int64_t lanes = 1;
    while (lanes * kWidth < columns) lanes *= 2;
    return lanes;
}

bool is_state(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }

/// The values of one shape that states have, and of equal parts of their rows, which threads hold one after the other.
class Matrices {
  public:
    Matrices(const Function& fn, const std::vector<std::vector<ValueId>>& users, Shape shape, int threads)
        : fn_(fn), users_(users), shape_(std::move(shape)) {
        for (const Op& op : fn.ops)
            if (op.code == Opcode::Part && op.attrs.dim == 0 && fn.op(op.args[0]).type.shape == shape_ &&
                holds_parts(op.type, threads))
                of_part_ = op.type.shape;
    }

    [[nodiscard]] bool has(ValueId v) const {
        const Op& op = fn_.op(v);
        if (of_part_ && op.type.shape == *of_part_) return ir::is_elementwise(op.code) || is_part(op);
        return op.type.shape == shape_ && (is_state(op) || ir::is_elementwise(op.code) || op.code == Opcode::Copy ||
                                           is_joined(op) || (ir::is_matmul(op.code) && depth_of(op) <= kMostDepth));
    }

    /// Empty: they can be held.
    [[nodiscard]] std::string why_not() const {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            if (!has(v)) continue;
            for (const ValueId u : users_[static_cast<std::size_t>(v)])
                if (!allows(u, v)) return fmt::format("{} reads {}", ir::described(fn_, u), ir::described(fn_, v));
        }
        for (const ir::Result& r : fn_.results) {
            const bool ours = has(r.value), state = r.role == Role::State || r.role == Role::Before;
            if (ours != (state && fn_.op(r.value).type.shape == shape_))
                return fmt::format("{} is the result '{}'", ir::described(fn_, r.value), r.name);
        }
        return "";
    }

  private:
    /// Whether each thread's rows of a part are a run of those that it holds of the whole, in the same order.
    static bool holds_parts(const ir::Type& part, int threads) {
        const std::int64_t floats = held_floats(size_of(part, 0), size_of(part, 1), threads);
        return floats > 0 && floats * threads == size_of(part, 0) * lanes_of(size_of(part, 1)) * kWidth &&
               floats % (kWidth * kWidth) == 0;
    }
    [[nodiscard]] bool is_part(const Op& op) const {
        return op.code == Opcode::Part && op.attrs.dim == 0 && fn_.op(op.args[0]).type.shape == shape_;
    }
    [[nodiscard]] bool is_joined(const Op& op) const {
        return op.code == Opcode::Concat && op.attrs.dim == 0 && of_part_ &&
               std::all_of(op.args.begin(), op.args.end(), [&](ValueId a) { return has(a); });
    }

    [[nodiscard]] std::int64_t depth_of(const Op& product) const {
        return size_of(fn_.op(product.args[0]).type, product.attrs.trans_a ? 0 : 1);
    }

    /// Whether a use of v is one that threads can do with what they hold.
    [[nodiscard]] bool allows(ValueId user, ValueId v) const {
        const Op& op = fn_.op(user);
        if (is_part(fn_.op(v))) return has(user) && !ir::is_matmul(op.code);  // it has no registers of its own
        if (ir::is_matmul(op.code)) return has(user) ? adds_to(op, v) : multiplies(op, v);
        if (has(user) || op.code == Opcode::Sum) return true;
        if (op.code != Opcode::Permute || op.attrs.perm != std::vector<std::int64_t>{1, 0}) return false;
        const auto& readers = users_[static_cast<std::size_t>(user)];
        return !is_result(user) && std::all_of(readers.begin(), readers.end(), [&](ValueId u) {
            return ir::is_matmul(fn_.op(u).code) && !has(u) && multiplies(fn_.op(u), user);
        });
    }

    /// An outer product on top of it.
    static bool adds_to(const Op& product, ValueId v) {
        return product.args.size() == 3 && product.args[2] == v && product.args[0] != v && product.args[1] != v;
    }

    /// A product of it, or of its transpose, with a few vectors.
    [[nodiscard]] bool multiplies(const Op& product, ValueId v) const {
        const bool first = product.args[0] == v, second = product.args[1] == v;
        if (first == second || product.attrs.tri != ir::Tri::None) return false;
        if (product.args.size() == 3 && product.args[2] == v) return false;
        const ValueId other = buffer_of(fn_, product.args[first ? 1 : 0]);
        return !has_shape_of_state(other) && size_of(product.type, first ? 1 : 0) <= kMostRows;
    }

    [[nodiscard]] bool has_shape_of_state(ValueId v) const {
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) {
            return is_state(op) && op.type.rank() == 2 && op.type.shape == fn_.op(v).type.shape;
        });
    }

    [[nodiscard]] bool is_result(ValueId v) const {
        return std::any_of(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) { return r.value == v; });
    }

    const Function& fn_;
    const std::vector<std::vector<ValueId>>& users_;
    Shape shape_;
    std::optional<Shape> of_part_;
};

std::int64_t floats_of(const ir::Type& type, int threads) {
    return held_floats(size_of(type, 0), size_of(type, 1), threads);
}

}  // namespace

std::int64_t held_floats(std::int64_t rows, std::int64_t columns, int threads) {
    constexpr std::int64_t kLanes = 32;
    if (rows < kLeastSize || columns < kLeastSize || columns % kWidth != 0 || columns > kLanes * kWidth) return 0;
    const std::int64_t at_once = threads / lanes_of(columns);
    return (rows + at_once - 1) / at_once * kWidth;
}

std::int64_t held_floats(const Function& fn, int threads) {
    std::int64_t floats = 0;
    for (const Op& op : fn.ops)
        if (is_state(op) && op.layout->space == ir::Layout::Space::Held) floats += floats_of(op.type, threads);
    return floats;
}

std::int64_t most_held_floats(int threads) {
    constexpr std::int64_t kRegisters = 65536, kMost = 128;
    constexpr int kAlone = 512;  // threads of a block that has a multiprocessor to itself
    return std::min(kMost, kRegisters / threads / (threads >= kAlone ? 2 : 4));
}

Held held_values(const Function& fn, int threads) {
    Held held{std::vector<bool>(fn.ops.size(), false), ""};
    const auto users = ir::users_of(fn);
    const auto refuse = [&](std::string why) {
        if (held.why_not.empty()) held.why_not = std::move(why);
    };
    std::vector<Shape> seen;
    std::int64_t floats = 0;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& state = fn.op(v);
        if (!is_state(state) || state.type.rank() < 2) continue;
        if (state.type.rank() > 2 || floats_of(state.type, threads) == 0) {
            refuse(fmt::format("{} is {}", ir::described(fn, v), ir::to_string(state.type)));
            continue;
        }
        const Matrices matrices(fn, users, state.type.shape, threads);
        const std::string why = matrices.why_not();
        if (!why.empty()) {
            refuse(why);
            continue;
        }
        floats += floats_of(state.type, threads);
        if (std::find(seen.begin(), seen.end(), state.type.shape) != seen.end()) continue;
        seen.push_back(state.type.shape);
        for (ValueId m = 0; m < fn.size(); ++m)
            if (matrices.has(m)) held.values[static_cast<std::size_t>(m)] = true;
    }
    if (floats > most_held_floats(threads)) {
        refuse(fmt::format("a thread would hold {} floats of them", floats));
        held.values.assign(fn.ops.size(), false);
    }
    return held;
}

}  // namespace forge::tile
