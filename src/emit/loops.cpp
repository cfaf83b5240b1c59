#include "emit/loops.h"

#include <algorithm>
#include <map>

#include "emit/names.h"
#include "forge/error.h"
#include "ir/triangular.h"
#include "tile/lower.h"

namespace forge::emit {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using tile::size_of;

/// An expression that was given a name, and the number of loops it stands in.
struct Known {
    std::string text;
    int depth = 0;
};

class LoopNest {
  public:
    /// `root` has the shape that is walked over.
    LoopNest(const Function& fn, ValueId root, const std::vector<std::string>& names, Walk walk,
             const RowTensors* tensors = nullptr)
        : fn_(fn), root_(root), names_(names), walk_(walk), tensors_(tensors), rank_(fn.op(root).type.rank()) {
        statements_.resize(static_cast<std::size_t>(rank_) + 1);
    }

    void write(Writer& out) {
        std::string stored = stored_text(root_);
        if (walk_ != Walk::Nested && is_triangle())
            stored = fmt::format("tril({}, {}, j)", stored, variable(rank_ - 2));
        if (walk_ == Walk::Held) statements_.back().push_back(fmt::format("{} = {};", held(root_), stored));
        else store(root_, stored);
        if (walk_ == Walk::Nested) write_level(out, 0);
        else if (walk_ == Walk::Shared) write_shared(out);
        else write_held(out);
    }

    /// All values of a row loop, in order.
    void write_stream(Writer& out, const tile::Stream& stream) {
        for (const ValueId v : stream.members) {
            if (!ir::is_elementwise(fn_.op(v).code)) {
                carried(v);
                continue;
            }
            const bool output = std::find(stream.outputs.begin(), stream.outputs.end(), v) != stream.outputs.end();
            if (output)
                statements_.back().push_back(fmt::format("store_row({}, i0, j, {});", tensors_->at(v), stored_text(v)));
            else if (fn_.op(v).layout->space == Layout::Space::Tile) store(v, stored_text(v));
        }
        write_level(out, 0);
    }

    /// Parts of rows, one below the other, as one matrix.
    void write_joined(Writer& out) {
        const auto& parts = fn_.op(root_).args;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const std::string part = held_type(fn_.op(parts[i]).type);
            out.put("#pragma unroll");
            out.open(fmt::format("for (int n = 0; n < {}::kSteps; ++n)", part));
            out.line("{}.x[n + {} * {}::kSteps] = {};", names_[static_cast<std::size_t>(root_)], i, part,
                     held(parts[i]));
            out.close();
        }
    }

  private:
    std::string stored_text(ValueId v) {
        const std::string text = evaluate_op(v).text;
        return fn_.op(v).type.dtype == DType::Bool ? fmt::format("mask_to_float({})", text) : text;
    }

    void store(ValueId v, const std::string& text) {
        statements_.back().push_back(
            fmt::format("store({} + {}, {});", names_[static_cast<std::size_t>(v)], index(v), text));
    }

    /// A scan or a sum: from the row before, which lies where this row goes or one row above.
    void carried(ValueId v) {
        const Op& op = fn_.op(v);
        const std::string& n = names_[static_cast<std::size_t>(v)];
        std::vector<std::string> args;
        for (const ValueId a : op.args) args.push_back(evaluate(a).text);
        const std::int64_t stride = op.type.rank() == 2 ? op.layout->strides[0] : 0;
        args.push_back(fmt::format("{} + {}{}", n, op.type.rank() == 2 ? index(v) : "j",
                                   stride == 0 ? "" : fmt::format(" - {}", stride)));
        const char* function = op.code == Opcode::LinearScanFrom ? "linear_scan_from_row"
                               : op.code == Opcode::LinearScan   ? "linear_scan_row"
                                                                 : "sum_row";
        name(v, fmt::format("{}({}, i0 == 0)", function, fmt::join(args, ", ")), rank_, n + "_j");
        statements_.back().push_back(fmt::format("store({} + {}, {}_j);", n, op.type.rank() == 2 ? index(v) : "j", n));
    }

    [[nodiscard]] std::string variable(int axis) const { return axis == rank_ - 1 ? "j" : fmt::format("i{}", axis); }
    [[nodiscard]] bool is_triangle() const { return rank_ == 2 && ir::triangle_of(fn_, root_) != ir::Triangle::Full; }

    void write_level(Writer& out, int depth) {
        for (const std::string& s : statements_[static_cast<std::size_t>(depth)]) out.put(s);
        if (depth == rank_) return;
        const std::int64_t n = size_of(fn_.op(root_).type, depth);
        const std::string i = variable(depth);
        if (depth < rank_ - 1) {
            out.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", i, n));
        } else if (is_triangle()) {
            out.line("int j = 0;");
            out.open("for (; j <= i0; j += kWidth)");
        } else {
            out.open(fmt::format("for (int j = 0; j < {}; j += kWidth)", n));
        }
        write_level(out, depth + 1);
        out.close();
        if (depth == rank_ - 1 && is_triangle())
            out.line("for (; j < {}; j += kWidth) store({} + {}, zero);", n, names_[static_cast<std::size_t>(root_)],
                     index(root_));
    }

    /// One vector per thread and turn; its place in the tile from its number.
    void write_shared(Writer& out) {
        constexpr std::int64_t kWidth = 4;
        const ir::Type& type = fn_.op(root_).type;
        const std::int64_t row = rank_ == 0 ? 1 : (size_of(type, rank_ - 1) + kWidth - 1) / kWidth;
        std::int64_t count = row, below = row;
        for (int axis = 0; axis + 1 < rank_; ++axis) count *= size_of(type, axis);
        out.open(fmt::format("for (int index = thread(); index < {}; index += kThreads)", count));
        std::string places;
        for (int axis = rank_ - 2; axis >= 0; --axis) {
            const std::string place = axis == 0 ? fmt::format("index / {}", below)
                                                : fmt::format("index / {} % {}", below, size_of(type, axis));
            places = fmt::format("{} = {}, {}", variable(axis), place, places);
            below *= size_of(type, axis);
        }
        if (rank_ > 0)
            out.line("[[maybe_unused]] const int {}j = index{} * {};", places,
                     rank_ == 1 ? "" : fmt::format(" % {}", row), kWidth);
        for (const auto& level : statements_)
            for (const std::string& s : level) out.put(s);
        out.close();
    }

    /// Of a part of rows, what the thread holds of the whole that far on.
    [[nodiscard]] std::string held(ValueId v) const {
        std::string at = "n";
        for (; fn_.op(v).code == Opcode::Part; v = fn_.op(v).args[0])
            if (const std::int64_t start = fn_.op(v).attrs.start; start > 0)
                at += fmt::format(" + {} * {}::kSteps", start, held_type(fn_.op(v).type));
        return fmt::format("{}.x[{}]", names_[static_cast<std::size_t>(v)], at);
    }

    /// What a thread holds, vector by vector.
    void write_held(Writer& out) {
        const std::string held = held_type(fn_.op(root_).type);
        out.put("#pragma unroll");
        out.open(fmt::format("for (int n = 0, self = thread(); n < {}::kSteps; ++n)", held));
        out.line("[[maybe_unused]] const int i0 = {0}::row(self, n), j = {0}::column(self);", held);
        for (const auto& level : statements_)
            for (const std::string& s : level) out.put(s);
        out.close();
    }

    /// Whether the vectors of a tile or a view of one begin at addresses from which whole ones can be loaded.
    [[nodiscard]] bool is_aligned(ValueId v) const {
        if (walk_ == Walk::Nested) return true;
        constexpr std::int64_t kWidth = 4;
        const Layout& layout = *fn_.op(v).layout;
        bool aligned = layout.offset % kWidth == 0;
        for (std::size_t axis = 0; axis + 1 < layout.strides.size(); ++axis)
            aligned = aligned && layout.strides[axis] % kWidth == 0;
        return aligned;
    }

    /// The element offset of the current loop position within the value's tile; broadcast axes contribute nothing.
    [[nodiscard]] std::string index(ValueId v) const {
        std::string text;
        for (const auto& [axis, stride] : moving(v))
            text += (text.empty() ? "" : " + ") +
                    (stride == 1 ? variable(axis) : fmt::format("{} * {}", variable(axis), stride));
        return text.empty() ? "0" : text;
    }

    /// Loop axes along which a tile is walked, with strides.
    [[nodiscard]] std::vector<std::pair<int, std::int64_t>> moving(ValueId v) const {
        const Op& op = fn_.op(v);
        std::vector<std::pair<int, std::int64_t>> axes;
        for (int axis = 0; axis < op.type.rank(); ++axis) {
            const std::int64_t stride = op.layout->strides[static_cast<std::size_t>(axis)];
            if (size_of(op.type, axis) != 1 && stride != 0) axes.emplace_back(axis + rank_ - op.type.rank(), stride);
        }
        return axes;
    }

    Known evaluate(ValueId v) {
        const auto it = known_.find(v);
        if (it != known_.end()) return it->second;
        const Known k = fn_.op(v).layout->space == Layout::Space::Reg ? evaluate_op(v) : load(v);
        return known_[v] = k;
    }

    Known load(ValueId v) {
        if (tensors_ && tensors_->contains(v))
            return name(v, fmt::format("load_row({}, i0, j)", tensors_->at(v)), rank_,
                        names_[static_cast<std::size_t>(v)] + "_j");
        if (fn_.op(v).layout->space == Layout::Space::Held) {
            const std::string text = held(v);
            return name(v, fn_.op(v).type.dtype == DType::Bool ? fmt::format("ne({}, zero)", text) : text, rank_,
                        names_[static_cast<std::size_t>(v)] + "_j");
        }
        const auto axes = moving(v);
        const std::string p = tile_pointer(fn_, v, names_);
        const int depth = axes.empty() ? 0 : axes.back().first + 1;
        const bool vector = !axes.empty() && axes.back().first == rank_ - 1;
        const std::string at = index(v) == "0" ? p : fmt::format("{} + {}", p, index(v));
        std::string text =
            vector ? (axes.back().second == 1 && is_aligned(v) ? fmt::format("load({})", at)
                                                               : fmt::format("gather({}, {})", at, axes.back().second))
                   : fmt::format("broadcast({}[{}])", p.find(' ') == std::string::npos ? p : "(" + p + ")", index(v));
        if (fn_.op(v).type.dtype == DType::Bool) text = fmt::format("ne({}, zero)", text);
        return name(v, text, depth, names_[static_cast<std::size_t>(v)] + "_j");
    }

    Known evaluate_op(ValueId v) {
        const Op& op = fn_.op(v);
        const std::string& n = names_[static_cast<std::size_t>(v)];
        if (op.code == Opcode::Constant) return {fmt::format("broadcast({})", float_literal(op.attrs.value)), 0};
        if (op.code == Opcode::Param) return {fmt::format("broadcast({})", n), 0};
        if (op.code == Opcode::Identity)
            return name(v, fmt::format("eye({}, j)", variable(rank_ - 2)), rank_, n + "_j");
        if (op.code == Opcode::Arange) return name(v, "count_from(j)", rank_, n + "_j");
        if (ir::is_matmul(op.code)) return name(v, outer_product(op), rank_, n + "_j");
        std::vector<std::string> args;
        int depth = 0;
        for (const ValueId a : op.args) {
            const Known k = evaluate(a);
            args.push_back(k.text);
            depth = std::max(depth, k.depth);
        }
        if (op.code == Opcode::Tril || op.code == Opcode::Triu) {
            depth = rank_;
            args.insert(args.end(), {variable(rank_ - 2), "j", std::to_string(op.attrs.diagonal)});
        }
        return name(v, expression(fn_, op, args), depth, n + "_j");
    }

    /// Of vectors in tiles, the numbers where the loop is.
    [[nodiscard]] std::string outer_product(const Op& op) const {
        const int rows = op.attrs.trans_a ? 1 : 0, depth = 1 - rows, columns = op.attrs.trans_b ? 0 : 1;
        const auto stride = [&](std::size_t arg, int axis) {
            return fn_.op(op.args[arg]).layout->strides[static_cast<std::size_t>(axis)];
        };
        return fmt::format("outer_product<{}, {}, {}, {}, {}>({}, {}, i0, j)", size_of(fn_.op(op.args[0]).type, depth),
                           stride(0, rows), stride(0, depth), stride(1, 1 - columns), stride(1, columns),
                           tile_pointer(fn_, op.args[0], names_), tile_pointer(fn_, op.args[1], names_));
    }

    Known name(ValueId v, const std::string& text, int depth, const std::string& variable_name) {
        statements_[static_cast<std::size_t>(depth)].push_back(fmt::format("const auto {} = {};", variable_name, text));
        const Known k{variable_name, depth};
        known_[v] = k;
        return k;
    }

    const Function& fn_;
    ValueId root_;
    const std::vector<std::string>& names_;
    Walk walk_;
    const RowTensors* tensors_;
    int rank_;
    std::vector<std::vector<std::string>> statements_;
    std::map<ValueId, Known> known_;
};

}  // namespace

std::string held_type(const ir::Type& type) { return fmt::format("Held<{}, {}>", size_of(type, 0), size_of(type, 1)); }

std::string tile_pointer(const Function& fn, ValueId v, const std::vector<std::string>& names) {
    const ValueId base = tile::buffer_of(fn, v);
    const std::int64_t skip = fn.op(v).layout->offset - fn.op(base).layout->offset;
    const std::string& name = names[static_cast<std::size_t>(base)];
    return skip == 0 ? name : fmt::format("{} + {}", name, skip);
}

void write_rows(Writer& out, const Function& fn, const tile::Stream& stream, const std::vector<std::string>& names,
                const RowTensors& tensors) {
    ValueId root = stream.members.front();
    if (fn.op(root).code == Opcode::Sum) root = fn.op(root).args[0];
    out.open("");
    LoopNest(fn, root, names, Walk::Nested, &tensors).write_stream(out, stream);
    out.close();
}

void write_loops(Writer& out, const Function& fn, ValueId root, const std::vector<std::string>& names, Walk walk) {
    if (walk != Walk::Nested) return LoopNest(fn, root, names, walk).write(out);
    out.open("");
    LoopNest(fn, root, names, walk).write(out);
    out.close();
}

void write_joined(Writer& out, const Function& fn, ValueId joined, const std::vector<std::string>& names) {
    LoopNest(fn, joined, names, Walk::Held).write_joined(out);
}

}  // namespace forge::emit
