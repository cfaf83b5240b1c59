#include "emit/cuda/fragment_loops.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "emit/cuda/fragment_inputs.h"
#include "emit/loops.h"
#include "emit/transfers.h"
#include "forge/error.h"
#include "ir/triangular.h"
#include "tile/fragments.h"

namespace forge::emit {
namespace {

using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using tile::size_of;
using Space = Layout::Space;

class FragmentLoop {
  public:
    FragmentLoop(Context& context, ValueId root)
        : c_(context), fn_(context.fn), root_(root), result_(root), space_(fn_.op(root).layout->space) {}
    /// Of a matrix at the spots of a fragment, wherever it lies.
    FragmentLoop(Context& context, ValueId root, Space space)
        : c_(context), fn_(context.fn), root_(root), result_(root), space_(space) {}

    void write_sum(ValueId sum, const std::string& work) {
        if (is_sum_of_products(sum))
            return c_.out.line("sum_rows_of_products({}, {}, {});", c_.name(sum), c_.name(fn_.op(root_).args[0]),
                               c_.name(fn_.op(root_).args[1]));
        result_ = sum;
        const std::string value = evaluate(root_);
        const bool along_rows = fn_.op(sum).attrs.dim == 1;
        const char* const what = fn_.op(sum).code == Opcode::Amax ? "greatest_of" : "sum";
        for (const std::string& s : before_) c_.out.put(s);
        c_.out.open(fmt::format("{}_{}{}<{}, {}>({}, {}[&](const Spot& spot)", what, along_rows ? "rows" : "columns",
                                reads_fragment_ ? "" : "_in_memory", rows(), cols(), c_.name(sum),
                                along_rows ? "" : work + ", "));
        for (const std::string& s : statements_) c_.out.put(s);
        c_.out.put(fmt::format("return {};", value));
        c_.out.close("});");
    }

    void write(const std::vector<ValueId>& joined) {
        std::vector<std::string> stores = {made(root_)};
        for (const ValueId v : joined) stores.push_back(made(v));
        for (const std::string& s : before_) c_.out.put(s);
        if (in_fragment()) {
            declare(root_);
            for (const ValueId v : joined) declare(v);
            c_.out.open(lower() ? fmt::format("each_lower<{}>([&](const Spot& spot)", rows())
                                : fmt::format("each<{}, {}>([&](const Spot& spot)", rows(), cols()));
        } else {
            const std::int64_t row = (cols() + 3) / 4;
            if (rows() * row > c_.dialect.threads)
                c_.out.put(has_long_text() ? "#pragma unroll 1" : "#pragma unroll 4");
            c_.out.open(fmt::format("for (int index = thread(); index < {}; index += kThreads)", rows() * row));
            if (rank() == 2) c_.out.line("[[maybe_unused]] const int i = index / {};", row);
            if (rank() > 0)
                c_.out.line("[[maybe_unused]] const int j = index{} * 4;",
                            rank() == 2 ? fmt::format(" % {}", row) : "");
        }
        for (const std::string& s : statements_) c_.out.put(s);
        for (const std::string& s : stores) c_.out.put(s);
        c_.out.close(in_fragment() ? "});" : "}");
    }

  private:
    void declare(ValueId v) {
        c_.out.line("Fragment<{}, {}> {}{};", rows(), cols(), c_.name(v), lower() ? " = {}" : "");
    }

    /// Whether a sum is over the rows of a product, number by number, of two matrices that lie in memory alike.
    [[nodiscard]] bool is_sum_of_products(ValueId sum) const {
        const Op& product = fn_.op(root_);
        return fn_.op(sum).code == Opcode::Sum && fn_.op(sum).attrs.dim == 1 && product.code == Opcode::Mul &&
               product.layout->space == Space::Reg &&
               std::all_of(product.args.begin(), product.args.end(), [&](ValueId a) {
                   const Op& op = fn_.op(a);
                   return !ir::is_view(op.code) && c_.is_operand(a) && op.layout->parts == 1 &&
                          op.type.shape == product.type.shape;
               });
    }

    /// How a value is stored. All is loaded before anything is, as it may lie where something that is read lay.
    std::string made(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Interleave) {
            const std::string first = evaluate(op.args[0]), second = evaluate(op.args[1]);
            made_.insert(v);
            return fmt::format("{}.put_by_turns(i, j, {}, {});", c_.name(v), first, second);
        }
        const std::string value = op.code == Opcode::Copy ? evaluate(op.args[0]) : evaluate_op(v);
        known_[v] = value, made_.insert(v);
        return stored(v, op.type.dtype == DType::Bool ? fmt::format("mask_to_float({})", value) : value);
    }

    [[nodiscard]] bool in_fragment() const { return space_ == Space::Fragment || space_ == Space::Transposed; }
    /// Whether nothing above the diagonal need be computed.
    [[nodiscard]] bool lower() const {
        return space_ == Space::Fragment && rows() == cols() && ir::triangle_of(fn_, root_) != ir::Triangle::Full;
    }
    [[nodiscard]] int rank() const { return fn_.op(root_).type.rank(); }
    /// Of the loop: a fragment of a transpose has the value's columns as rows; what is made by turns has those of each.
    [[nodiscard]] std::int64_t extent(int axis) const {
        const Op& op = fn_.op(root_);
        const ir::Type& type = op.code == Opcode::Interleave ? fn_.op(op.args[0]).type : op.type;
        return axis < 0 ? 1 : size_of(type, axis);
    }
    [[nodiscard]] std::int64_t rows() const { return extent(space_ == Space::Transposed ? 1 : rank() - 2); }
    [[nodiscard]] std::int64_t cols() const { return extent(space_ == Space::Transposed ? 0 : rank() - 1); }
    /// The axis of the value along which a vector's elements lie.
    [[nodiscard]] int lane_axis() const { return space_ == Space::Transposed ? 0 : rank() - 1; }

    /// Whether the loop takes functions of dozens of instructions, of which one copy for four numbers keeps a thread
    /// busy: with several the text of a kernel that turns keys outgrows the 128 KB that a multiprocessor keeps of it.
    [[nodiscard]] bool has_long_text() const {
        constexpr std::array kLong = {Opcode::Sin,   Opcode::Cos,   Opcode::Tanh,     Opcode::Pow,
                                      Opcode::Log1p, Opcode::Expm1, Opcode::Softplus, Opcode::Logsigmoid};
        const auto is_long = [&](ValueId v) {
            return std::find(kLong.begin(), kLong.end(), fn_.op(v).code) != kLong.end();
        };
        return std::any_of(known_.begin(), known_.end(), [&](const auto& known) {
            const bool here = fn_.op(known.first).layout->space == Space::Reg || made_.contains(known.first);
            return here && is_long(known.first);
        });
    }

    /// The loop's variable for an axis of the value.
    [[nodiscard]] std::string variable(int axis) const {
        const bool lane = axis == lane_axis();
        return in_fragment() ? lane ? "spot.j" : "spot.i" : lane ? "j" : "i";
    }
    [[nodiscard]] std::string function(const char* name) const {
        return in_fragment() ? fmt::format("{}_pair", name) : name;
    }
    [[nodiscard]] std::string zero() const { return function("broadcast") + "(0.0f)"; }

    [[nodiscard]] std::string stored(ValueId v, const std::string& value) const {
        const std::string& n = c_.name(v);
        if (in_fragment()) return fmt::format("{}.put(spot, {});", n, value);
        if (c_.is_operand(v)) return fmt::format("{}.put_four(i, j, {});", n, value);
        return fmt::format("store({}, {});",
                           rank() == 0   ? n
                           : rank() == 1 ? n + " + j"
                                         : fmt::format("{} + i * {} + j", n, fn_.op(v).layout->strides[0]),
                           value);
    }

    std::string evaluate(ValueId v) {
        if (const auto it = known_.find(v); it != known_.end()) return it->second;
        return known_[v] = fn_.op(v).layout->space == Space::Reg ? evaluate_op(v) : named(v, load(v));
    }

    /// Truth values are kept as numbers.
    std::string load(ValueId v) {
        const std::string kept = load_kept(v);
        return fn_.op(v).type.dtype == DType::Bool ? fmt::format("ne({}, {})", kept, zero()) : kept;
    }

    std::string load_kept(ValueId v) {
        const Op& op = fn_.op(v);
        const std::string& n = c_.name(v);
        reads_fragment_ = reads_fragment_ || c_.is_fragment(v);
        if (op.code == Opcode::DecayMask) return decays({v});
        switch (op.layout->space) {
            case Space::Fragment:
            case Space::Transposed:
                return fmt::format("{}.at(spot)", n);
            case Space::Operand:
                return fmt::format("{}.{}({}, {})", n, in_fragment() ? "at" : "four_at", variable(0), variable(1));
            case Space::Spill:
                if (op.attrs.role == ir::Role::Spill)
                    return fmt::format("{}.{}({}, {})", n, in_fragment() ? "at" : "four_at", variable(0), variable(1));
                return load_where_it_lies(v);
            case Space::Tile:
            case Space::Reg:
            case Space::Held:  // of the portable kernels
                break;
        }
        return load_tile(v);
    }

    [[nodiscard]] std::string load_part(const tile::PartInPlace& part) const {
        if (part.col_step == 2)
            return fmt::format("{}.{}_by_turns_at<{}>({}, {})", c_.name(part.of), in_fragment() ? "pair" : "four",
                               part.col, variable(0), variable(1));
        std::string row = part.row_step == 1 ? variable(0) : fmt::format("{} * {}", variable(0), part.row_step);
        if (part.row != 0) row += fmt::format(" + {}", part.row);
        const std::string col = part.col == 0 ? variable(1) : fmt::format("{} + {}", variable(1), part.col);
        return fmt::format("{}.{}({}, {})", c_.name(part.of), in_fragment() ? "at" : "four_at", row, col);
    }

    [[nodiscard]] std::string load_beside(const tile::RowsBeside& rows) const {
        const std::string row = variable(0), beside = fmt::format("({} {} 1)", row, rows.step > 0 ? "+" : "-"),
                          there = rows.step > 0 ? fmt::format("{} < {}", row, size_of(fn_.op(rows.of).type, 0) - 1)
                                                : row + " > 0",
                          at = c_.is_operand(rows.of)
                                   ? fmt::format("{}.{}({}, {})", c_.name(rows.of), in_fragment() ? "at" : "four_at",
                                                 beside, variable(1))
                                   : load_tile(rows.of, beside);
        return fmt::format("{} ? {} : {}", there, at, zero());
    }

    [[nodiscard]] std::string decays(const tile::RepeatedMask& of) const {
        const char* kind = space_ == Space::Transposed ? "decays_down" : in_fragment() ? "decays" : "decays_four";
        const std::string repeats = of.rows * of.cols == 1 ? "" : fmt::format(", {}, {}", of.rows, of.cols);
        return fmt::format("{}<{}{}>({}, {}, {})", kind, fn_.op(of.mask).attrs.exclusive, repeats, c_.name(of.mask),
                           variable(0), variable(1));
    }

    std::string load_where_it_lies(ValueId v) {
        const std::string& name = fn_.op(v).attrs.name;
        const int tensor = c_.plan.tensor(plan::TensorSlot::Kind::Input, name);
        const std::string matrix = FragmentInputs::token_matrix(c_.plan, name, tensor, fn_.op(v).attrs.at);
        std::string part = Transfers(c_).columns_of(tensor, fn_.op(v).attrs.at);
        if (!part.empty()) part = ", " + part;
        const std::string count = FragmentInputs::row_count(c_.plan, tensor);
        if (!in_fragment())
            return fmt::format("four_where_they_lie({}, {}, {}, {}{})", matrix, count, variable(0), variable(1), part);
        reads_fragment_ = true;
        const std::string there = fmt::format("{}_of_{}", c_.name(v), c_.name(result_));
        before_.push_back(fmt::format("const auto {} = fragment_where_it_lies<{}, {}>({}, {}{});", there, rows(),
                                      cols(), matrix, count, part));
        return there + ".at(spot)";
    }

    /// `row`: of a matrix, if not the loop's own.
    [[nodiscard]] std::string load_tile(ValueId v, const std::string& row = "") const {
        const Op& op = fn_.op(v);
        std::string at = tile_pointer(fn_, v, c_.names);
        std::int64_t lane_stride = 0;
        bool aligned = op.layout->offset % 4 == 0;
        for (int axis = 0; axis < op.type.rank(); ++axis) {
            const std::int64_t stride = op.layout->strides[static_cast<std::size_t>(axis)];
            const int loop_axis = axis + rank() - op.type.rank();
            if (size_of(op.type, axis) == 1 || stride == 0) continue;
            std::string index = variable(loop_axis);
            if (axis == 0 && !row.empty()) index = row;
            at += stride == 1 ? " + " + index : fmt::format(" + {} * {}", index, stride);
            if (loop_axis == lane_axis()) lane_stride = stride;
            else aligned = aligned && stride % 4 == 0;
        }
        if (lane_stride == 0) return fmt::format("{}(*({}))", function("broadcast"), at);
        return lane_stride == 1 && aligned ? fmt::format("{}({})", function("load"), at)
                                           : fmt::format("{}({}, {})", function("gather"), at, lane_stride);
    }

    std::string evaluate_op(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.code == Opcode::Constant)
            return fmt::format("{}({})", function("broadcast"), float_literal(op.attrs.value));
        if (op.code == Opcode::Param) return fmt::format("{}({})", function("broadcast"), c_.name(v));
        if (op.code == Opcode::Identity)
            return fmt::format("{}({}, {})", function("eye"), variable(rank() - 2), variable(rank() - 1));
        if (op.code == Opcode::Arange) return named(v, fmt::format("count_from({})", variable(0)));
        if (const auto part = tile::part_in_place(fn_, v)) return named(v, load_part(*part));
        if (const auto beside = tile::rows_beside(fn_, v)) return named(v, load_beside(*beside));
        if (ir::is_view(op.code)) return number(op.args[0]);
        if (const auto mask = tile::repeated_mask(fn_, v)) return named(v, decays(*mask));
        if (op.code == Opcode::RepeatInterleave)
            return named(v, load_tile(op.args[0], fmt::format("{} / {}", variable(0), op.attrs.count)));
        std::vector<std::string> args;
        for (const ValueId a : op.args) args.push_back(evaluate(a));
        if (op.code == Opcode::Tril || op.code == Opcode::Triu) return named(v, triangle(op, args[0]));
        if (op.code == Opcode::Div && !c_.needs_exactness(v))
            return named(v, fmt::format("ratio({}, {})", args[0], args[1]));
        return named(v, expression(fn_, op, args, zero()));
    }

    /// What a view of a number is, too.
    std::string number(ValueId v) {
        const Op& op = fn_.op(v);
        if (op.layout->space != Space::Reg || (op.type.rank() > 0 && !ir::is_view(op.code)))
            throw InternalError("emit: a view of a matrix in a loop: " + op.name);
        return evaluate(v);
    }

    /// In a transpose, entries (i, j) to (i, j + 1) are (j, i) to (j + 1, i) of the value.
    [[nodiscard]] std::string triangle(const Op& op, const std::string& x) const {
        const bool lower = op.code == Opcode::Tril;
        if (space_ == Space::Transposed)
            return fmt::format("{}({}, spot.i, spot.j, {})", lower ? "triu" : "tril", x, -op.attrs.diagonal);
        return fmt::format("{}({}, {}, {}, {})", lower ? "tril" : "triu", x, variable(rank() - 2), variable(rank() - 1),
                           op.attrs.diagonal);
    }

    std::string named(ValueId v, const std::string& text) {
        const std::string name = c_.name(v) + "_j";
        statements_.push_back(fmt::format("const auto {} = {};", name, text));
        return known_[v] = name;
    }

    Context& c_;
    const Function& fn_;
    ValueId root_, result_;  ///< what is evaluated, and what it is for
    Space space_;
    std::vector<std::string> before_, statements_;
    std::map<ValueId, std::string> known_;
    std::set<ValueId> made_;  ///< what the loop stores
    bool reads_fragment_ = false;
};

}  // namespace

void write_fragment_loop(Context& context, ValueId root, const std::vector<ValueId>& joined) {
    FragmentLoop(context, root).write(joined);
}

void write_fragment_sum(Context& context, ValueId sum, const std::string& work) {
    FragmentLoop(context, context.fn.op(sum).args[0], Space::Fragment).write_sum(sum, work);
}

}  // namespace forge::emit
