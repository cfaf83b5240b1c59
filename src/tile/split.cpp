#include "tile/split.h"

#include <algorithm>
#include <functional>
#include <map>

#include "forge/error.h"
#include "graph/slice.h"
#include "ir/definition.h"
#include "tile/fragments.h"

namespace forge::tile {
namespace {

using graph::has_axis;

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

using Index = std::vector<std::int64_t>;  ///< of a block, one number per axis of its value

std::size_t axis_of(const Op& op, std::int64_t rank) {
    return static_cast<std::size_t>(op.attrs.dim < 0 ? op.attrs.dim + rank : op.attrs.dim);
}

/// The axis that a product sums over, of its operand `i`.
std::size_t inner_axis(const Op& op, std::size_t i) {
    return i == 0 ? (op.attrs.trans_a ? 0 : 1) : (op.attrs.trans_b ? 1 : 0);
}

/// Whether an operation's own axis is this one.
bool is_along(const Function& fn, const Op& op, const std::string& axis) {
    const Shape& shape = fn.op(op.args[0]).type.shape;
    return shape[axis_of(op, static_cast<std::int64_t>(shape.size()))].symbol == axis;
}

/// Whether numbers of the axis take turns: every other one is taken, or comes from another value.
bool takes_turns(const Function& fn, const Op& op, const std::string& axis) {
    return (op.code == Opcode::Interleave || op.code == Opcode::Slice) && is_along(fn, op, axis);
}

/// Whether an operation works on each block alone, or adds up what it makes of them.
bool is_by_blocks(const Function& fn, const Op& op, const std::string& axis) {
    const auto reads = [&](std::size_t i) { return has_axis(fn.op(op.args[i]).type, axis); };
    switch (op.code) {
        case Opcode::Param:
        case Opcode::Constant:
        case Opcode::Copy:
        case Opcode::Expand:
        case Opcode::Unsqueeze:
        case Opcode::Squeeze:
        case Opcode::Permute:
        case Opcode::Sum:
        case Opcode::Amax:
        case Opcode::Arange:
        case Opcode::Part:
        case Opcode::Concat:
        case Opcode::Interleave:
            return true;
        case Opcode::Slice:
            return op.attrs.length == 0;
        case Opcode::RepeatInterleave:
        case Opcode::Cumsum:
        case Opcode::Cumprod:
        case Opcode::LinearScan:
        case Opcode::Select:
            return !is_along(fn, op, axis);
        case Opcode::DecayMatmul:
            return true;
        case Opcode::DecayApply:
            return !reads(0);
        case Opcode::Matmul:
        case Opcode::MatmulOutFp32:
        case Opcode::MatmulAdd:
        case Opcode::MatmulSub:
            return op.attrs.tri == ir::Tri::None ||
                   (op.attrs.tri == ir::Tri::OutLower ? !has_axis(op.type, axis) : !reads(0));
        case Opcode::Tril:
        case Opcode::Triu:
            return false;
        default:
            return ir::is_elementwise(op.code);
    }
}

/// The most numbers that a kernel's values have per number of a symbol.
std::int64_t most_of(const Function& fn, const std::string& axis) {
    std::int64_t most = 1;
    for (const Op& op : fn.ops)
        for (const Dim& d : op.type.shape)
            if (d.symbol == axis) most = std::max(most, d.factor);
    return most;
}

/// Whether what has fewer numbers of an axis than most, and so smaller blocks, is what loops alone read.
bool halves_in_loops(const Function& fn, const std::string& axis, std::int64_t most) {
    const auto is_less = [&](ValueId v) {
        const Shape& shape = fn.op(v).type.shape;
        return std::any_of(shape.begin(), shape.end(),
                           [&](const Dim& d) { return d.symbol == axis && d.factor != most; });
    };
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (op.code == Opcode::Param && op.type.rank() > 1 && is_less(v)) return false;
        if ((op.code == Opcode::Part || op.code == Opcode::Concat) && is_along(fn, op, axis)) return false;
        const bool multiplies =
            ir::is_matmul(op.code) || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
        if (multiplies && (is_less(v) || std::any_of(op.args.begin(), op.args.end(), is_less))) return false;
    }
    return kBlock % most == 0 &&
           std::none_of(fn.results.begin(), fn.results.end(), [&](const ir::Result& r) { return is_less(r.value); });
}

/// The symbols of axes of several blocks that every operation of the kernel takes block by block, with the numbers of
/// each that are a block; 0: a block is as many numbers of whatever has the axis, of axes twice as long too.
std::map<std::string, std::int64_t> long_axes(const Function& fn, const Sizes& sizes) {
    std::map<std::string, std::int64_t> axes;
    const auto touches = [&](const Op& op, const std::string& axis) {
        return has_axis(op.type, axis) ||
               std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return has_axis(fn.op(a).type, axis); });
    };
    for (const auto& [axis, size] : sizes) {
        const std::int64_t most = most_of(fn, axis);
        if (axis == ir::kChunkSymbol || most * size <= kBlock || size % kBlock != 0) continue;
        bool by_blocks = true, by_turns = false;
        for (const Op& op : fn.ops) {
            if (!touches(op, axis)) continue;
            by_blocks = by_blocks && is_by_blocks(fn, op, axis);
            by_turns = by_turns || (by_blocks && takes_turns(fn, op, axis));
        }
        if (by_blocks && (!by_turns || halves_in_loops(fn, axis, most))) axes[axis] = by_turns ? kBlock / most : 0;
    }
    return axes;
}

class Splitting {
  public:
    Splitting(const Function& fn, const Sizes& sizes) : fn_(fn), sizes_(sizes), axes_(long_axes(fn, sizes)) {
        out_.name = fn.name;
    }

    Function run() {
        for (ValueId v = 0; v < fn_.size(); ++v) {
            std::vector<ValueId> made;
            each_block(fn_.op(v).type, [&](const Index& at) { made.push_back(block(v, at)); });
            blocks_.push_back(std::move(made));
        }
        for (const ir::Result& r : fn_.results)
            each_block(fn_.op(r.value).type, [&](const Index& at) {
                out_.results.push_back({r.name, r.role, of(r.value, at), start(fn_.op(r.value).type, at)});
            });
        return std::move(out_);
    }

  private:
    [[nodiscard]] bool is_split(const Dim& d) const { return axes_.contains(d.symbol); }
    /// Numbers of a block along an axis that is split.
    [[nodiscard]] std::int64_t width(const Dim& d) const {
        const std::int64_t each = axes_.at(d.symbol);
        return each == 0 ? kBlock : each * d.factor;
    }
    [[nodiscard]] std::int64_t count(const Dim& d) const {
        return is_split(d) ? d.factor * sizes_.at(d.symbol) / width(d) : 1;
    }

    void each_block(const ir::Type& type, const std::function<void(const Index&)>& visit) const {
        Index at(type.shape.size(), 0);
        for (bool more = true; more;) {
            visit(at);
            more = false;
            for (std::size_t axis = at.size(); axis-- > 0 && !more;) {
                more = ++at[axis] < count(type.shape[axis]);
                if (!more) at[axis] = 0;
            }
        }
    }

    /// The block of a value at `at`; of axes that it has whole, or alike for all, the first.
    [[nodiscard]] ValueId of(ValueId v, const Index& at) const {
        const Shape& shape = fn_.op(v).type.shape;
        std::size_t index = 0;
        for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            const auto n = static_cast<std::size_t>(count(shape[axis]));
            index = index * n + (n == 1 ? 0 : static_cast<std::size_t>(at[axis]));
        }
        return blocks_[static_cast<std::size_t>(v)][index];
    }

    /// Where a block begins; empty: there is one.
    [[nodiscard]] std::vector<std::int64_t> start(const ir::Type& type, const Index& at) const {
        if (std::none_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return is_split(d); })) return {};
        std::vector<std::int64_t> first;
        for (std::size_t axis = 0; axis < at.size(); ++axis)
            first.push_back(is_split(type.shape[axis]) ? at[axis] * width(type.shape[axis]) : 0);
        return first;
    }

    ValueId add(const Op& like, Opcode code, std::vector<ValueId> args) {
        Op op = like;
        op.code = code;
        op.args = std::move(args);
        for (Dim& d : op.type.shape)
            if (is_split(d)) d = Dim(width(d));
        return out_.add(std::move(op));
    }

    ValueId block(ValueId v, const Index& at) {
        const Op& op = fn_.op(v);
        if (ir::is_matmul(op.code)) return product(op, at);
        switch (op.code) {
            case Opcode::Param: {
                const ValueId param = add(op, op.code, {});
                out_.op(param).attrs.at = start(op.type, at);
                return param;
            }
            case Opcode::Sum:
                return reduced(op, at, Opcode::Add);
            case Opcode::Amax:
                return reduced(op, at, Opcode::Maximum);
            case Opcode::DecayMatmul:
                return decayed(op);
            case Opcode::DecayApply:
                return add(op, op.code, {of(op.args[0], {0, 0}), of(op.args[1], at), of(op.args[2], at)});
            case Opcode::Unsqueeze:
            case Opcode::Squeeze:
            case Opcode::Select:
            case Opcode::Permute:
                return add(op, op.code, {of(op.args[0], before_view(op, at))});
            case Opcode::Arange:
                return counted(op, at);
            case Opcode::Part:
            case Opcode::Concat:
                if (is_split(op.type.shape[axis_of(op, op.type.rank())])) return taken(op, at);
                break;
            default:
                break;
        }
        std::vector<ValueId> args;
        for (const ValueId a : op.args) {  // broadcast: the last axes are the same
            const auto rank = static_cast<std::ptrdiff_t>(fn_.op(a).type.shape.size());
            args.push_back(rank > static_cast<std::ptrdiff_t>(at.size()) ? of(a, Index(fn_.op(a).type.shape.size(), 0))
                                                                         : of(a, Index(at.end() - rank, at.end())));
        }
        return add(op, op.code, std::move(args));
    }

    /// The numbers from where a block begins.
    ValueId counted(const Op& op, const Index& at) {
        const ValueId count = add(op, op.code, {});
        if (at[0] == 0) return count;
        Op first = op;
        first.code = Opcode::Constant, first.type.shape = {};
        first.attrs.value = static_cast<double>(at[0] * width(op.type.shape[0]));
        return add(op, Opcode::Add, {count, out_.add(std::move(first))});
    }

    /// Of parts of whole blocks, and of what is joined of such: a block that there is.
    [[nodiscard]] ValueId taken(const Op& op, Index at) const {
        const std::size_t axis = axis_of(op, op.type.rank());
        if (op.code == Opcode::Part) {
            at[axis] += op.attrs.start * count(op.type.shape[axis]);
            return of(op.args[0], at);
        }
        for (const ValueId a : op.args) {
            const std::int64_t blocks = count(fn_.op(a).type.shape[axis]);
            if (at[axis] < blocks) return of(a, at);
            at[axis] -= blocks;
        }
        throw InternalError("split: a block behind the end of what is joined");
    }

    [[nodiscard]] Index before_view(const Op& op, const Index& at) const {
        Index from = at;
        const auto rank = static_cast<std::int64_t>(at.size());
        if (op.code == Opcode::Unsqueeze) from.erase(from.begin() + static_cast<std::ptrdiff_t>(axis_of(op, rank)));
        else if (op.code == Opcode::Squeeze || op.code == Opcode::Select)
            from.insert(from.begin() + static_cast<std::ptrdiff_t>(axis_of(op, rank + 1)), 0);
        else
            for (std::size_t axis = 0; axis < at.size(); ++axis)
                from[static_cast<std::size_t>(op.attrs.perm[axis])] = at[axis];
        return from;
    }

    ValueId reduced(const Op& op, const Index& at, Opcode join) {
        const ir::Type& type = fn_.op(op.args[0]).type;
        const std::size_t axis = axis_of(op, type.rank());
        Index from = at;
        from.insert(from.begin() + static_cast<std::ptrdiff_t>(axis), 0);
        ValueId sum = ir::kNoValue;
        for (std::int64_t& i = from[axis]; i < count(type.shape[axis]); ++i) {
            const ValueId part = add(op, op.code, {of(op.args[0], from)});
            sum = sum == ir::kNoValue ? part : add(op, join, {sum, part});
        }
        return sum;
    }

    ValueId decayed(const Op& op) {
        ValueId sum = ir::kNoValue;
        for (std::int64_t i = 0; i < count(fn_.op(op.args[0]).type.shape[1]); ++i) {
            const ValueId part =
                add(op, op.code, {of(op.args[0], {0, i}), of(op.args[1], {0, i}), of(op.args[2], {0, i})});
            sum = sum == ir::kNoValue ? part : add(op, Opcode::Add, {sum, part});
        }
        return sum;
    }

    ValueId product(const Op& op, const Index& at) {
        const std::size_t inner_a = inner_axis(op, 0), inner_b = inner_axis(op, 1);
        ValueId sum = op.args.size() == 3 ? of(op.args[2], at) : ir::kNoValue;
        const std::int64_t blocks = count(fn_.op(op.args[0]).type.shape[inner_a]);
        for (std::int64_t i = 0; i < blocks; ++i) {
            Index a = {at[0], at[0]}, b = {at[1], at[1]};
            a[inner_a] = b[inner_b] = i;
            std::vector<ValueId> args = {of(op.args[0], a), of(op.args[1], b)};
            const bool first = sum == ir::kNoValue;
            if (!first) args.push_back(sum);
            sum = add(op, first || op.args.size() == 3 ? op.code : Opcode::MatmulAdd, std::move(args));
        }
        return sum;
    }

    const Function& fn_;
    const Sizes& sizes_;
    std::map<std::string, std::int64_t> axes_;
    Function out_;
    std::vector<std::vector<ValueId>> blocks_;  ///< of every value, the last axis's one after the other
};

}  // namespace

Function split_axes(const Function& kernel, const Sizes& sizes) { return Splitting(kernel, sizes).run(); }

}  // namespace forge::tile
