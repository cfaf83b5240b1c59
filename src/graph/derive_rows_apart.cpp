#include "graph/derive_rows_apart.h"

#include <algorithm>
#include <map>

#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// One value, or one for each row: the rows are its first axis, or its last where it was transposed.
struct RowParts {
    ValueId whole = ir::kNoValue;
    std::vector<ValueId> parts = {};
    bool transposed = false;
    [[nodiscard]] bool apart() const { return !parts.empty(); }
};

class Apart {
  public:
    Apart(const Function& step, const ir::Definition& def) : step_(step), def_(def) { out_.name = step.name; }

    Function run() {
        for (ValueId v = 0; v < step_.size(); ++v) made_.push_back(make(step_.op(v)));
        for (const ir::Result& r : step_.results) {
            RowParts& rows = made_[static_cast<std::size_t>(r.value)];
            const ir::OutputDecl* o = r.role == Role::Input ? def_.output(r.name) : nullptr;
            const std::int64_t count = o ? o->type.shape[0].factor : 1;
            if (count > 1 && !rows.apart() && out_.op(rows.whole).type.rank() > 0 &&
                out_.op(rows.whole).type.shape[0] == Dim(count)) {
                const ValueId whole = rows.whole;
                rows = {};
                for (std::int64_t i = 0; i < count; ++i) rows.parts.push_back(at(Opcode::Select, whole, 0, i));
            }
            out_.results.push_back({r.name, r.role, together(rows)});
        }
        return std::move(out_);
    }

  private:
    ValueId at(Opcode code, ValueId v, std::int64_t dim, std::int64_t start = 0) {
        Attrs attrs;
        attrs.dim = dim;
        attrs.start = start;
        return ir::emit(out_, code, {v}, attrs, out_.op(v).where);
    }

    ValueId together(const RowParts& rows) {
        if (!rows.apart()) return rows.whole;
        std::vector<ValueId> parts;
        for (const ValueId p : rows.parts) parts.push_back(at(Opcode::Unsqueeze, p, rows.transposed ? 1 : 0));
        Attrs attrs;
        attrs.dim = rows.transposed ? 1 : 0;
        return ir::emit(out_, Opcode::Concat, std::move(parts), attrs, out_.op(rows.parts[0]).where);
    }

    /// The rows of an input, or of a stack.
    RowParts taken_apart(const Op& op, ValueId v) {
        const Op& source = op.code == Opcode::PrevToken ? out_.op(op.args[0]) : op;
        const ir::InputDecl* in = source.code == Opcode::Param ? def_.input(source.attrs.name) : nullptr;
        if (!in || in->role != Role::Input || in->type.shape[0].factor == 1) return {v};
        RowParts rows;
        for (std::int64_t i = 0; i < in->type.shape[0].factor; ++i) rows.parts.push_back(at(Opcode::Select, v, 0, i));
        return rows;
    }

    RowParts make(const Op& op) {
        std::vector<const RowParts*> args;
        for (const ValueId a : op.args) args.push_back(&made_[static_cast<std::size_t>(a)]);
        if (op.code == Opcode::PrevToken) {  // of the input itself
            Op shifted = op;
            shifted.args[0] = inputs_.at(op.args[0]);
            return taken_apart(shifted, out_.add(shifted));
        }
        if (std::any_of(args.begin(), args.end(), [](const RowParts* r) { return r->apart(); }))
            if (RowParts rows = by_rows(op, args); rows.apart() || rows.whole != ir::kNoValue) return rows;
        Op copy = op;
        for (std::size_t i = 0; i < args.size(); ++i) copy.args[i] = together(*args[i]);
        const ValueId v = out_.add(copy);
        if (op.code == Opcode::Param) inputs_[static_cast<ValueId>(made_.size())] = v;
        return op.code == Opcode::Param ? taken_apart(copy, v) : RowParts{v};
    }

    /// Nothing where the operation has no rows of its own.
    RowParts by_rows(const Op& op, const std::vector<const RowParts*>& args) {
        const RowParts& first = *args[0];
        const auto count = static_cast<std::int64_t>(
            (*std::find_if(args.begin(), args.end(), [](const RowParts* r) { return r->apart(); }))->parts.size());
        const std::int64_t rank = first.apart() ? out_.op(first.parts[0]).type.rank() + 1 : 0;
        const std::int64_t dim =
            op.attrs.dim < 0 ? op.attrs.dim + (op.code == Opcode::Unsqueeze ? rank + 1 : rank) : op.attrs.dim;
        if (ir::along(op.code) == Along::Pointwise) return pointwise(op, args, count);
        if (op.code == Opcode::Matmul) return product(op, args);
        if (!first.apart() || first.transposed || args.size() != 1) return {};
        if (op.code == Opcode::Select && dim == 0)
            return {
                first.parts[static_cast<std::size_t>(op.attrs.start < 0 ? op.attrs.start + count : op.attrs.start)]};
        if (op.code == Opcode::Permute && op.attrs.perm == std::vector<std::int64_t>{1, 0})
            return {ir::kNoValue, first.parts, true};
        const bool inner =
            dim > 0 && (op.code == Opcode::Unsqueeze || op.code == Opcode::Squeeze || op.code == Opcode::Select ||
                        op.code == Opcode::Sum || op.code == Opcode::Amax || op.code == Opcode::L2norm ||
                        op.code == Opcode::Softmax || op.code == Opcode::Part || op.code == Opcode::Slice);
        if (!inner) return {};
        RowParts rows;
        Attrs attrs = op.attrs;
        attrs.dim = dim - 1;
        for (const ValueId p : first.parts) rows.parts.push_back(ir::emit(out_, op.code, {p}, attrs, op.where));
        return rows;
    }

    RowParts pointwise(const Op& op, const std::vector<const RowParts*>& args, std::int64_t count) {
        const int rank = op.type.rank();
        std::vector<std::vector<ValueId>> operands;
        for (const RowParts* r : args) {
            if (r->apart()) {
                const int own = out_.op(r->parts[0]).type.rank() + 1;
                if (r->transposed || own != rank || static_cast<std::int64_t>(r->parts.size()) != count) return {};
                operands.push_back(r->parts);
                continue;
            }
            const Shape& shape = out_.op(r->whole).type.shape;
            std::vector<ValueId> rows;
            for (std::int64_t i = 0; i < count; ++i) {
                if (static_cast<int>(shape.size()) < rank) rows.push_back(r->whole);
                else rows.push_back(at(Opcode::Select, r->whole, 0, shape[0] == Dim(1) ? 0 : i));
            }
            operands.push_back(std::move(rows));
        }
        RowParts rows;
        for (std::int64_t i = 0; i < count; ++i) {
            std::vector<ValueId> row;
            for (const auto& o : operands) row.push_back(o[static_cast<std::size_t>(i)]);
            rows.parts.push_back(ir::emit(out_, op.code, std::move(row), op.attrs, op.where));
        }
        return rows;
    }

    /// RowParts times a matrix are rows; columns times rows a sum of outer products.
    RowParts product(const Op& op, const std::vector<const RowParts*>& args) {
        const RowParts &a = *args[0], &b = *args[1];
        if (a.apart() && !a.transposed && !b.apart()) {
            RowParts rows;
            for (const ValueId p : a.parts) {
                const ValueId row =
                    ir::emit(out_, Opcode::Matmul, {at(Opcode::Unsqueeze, p, 0), b.whole}, {}, op.where);
                rows.parts.push_back(at(Opcode::Squeeze, row, 0));
            }
            return rows;
        }
        if (!a.apart() || !a.transposed || !b.apart() || b.transposed) return {};
        ValueId sum = ir::kNoValue;
        for (std::size_t i = 0; i < a.parts.size(); ++i) {
            const ValueId outer =
                ir::emit(out_, Opcode::Mul,
                         {at(Opcode::Unsqueeze, a.parts[i], 1), at(Opcode::Unsqueeze, b.parts[i], 0)}, {}, op.where);
            sum = sum == ir::kNoValue ? outer : ir::emit(out_, Opcode::Add, {sum, outer}, {}, op.where);
        }
        return {sum};
    }

    const Function& step_;
    const ir::Definition& def_;
    Function out_;
    std::vector<RowParts> made_;
    std::map<ValueId, ValueId> inputs_;
};

}  // namespace

Function rows_apart(const Function& step, const ir::Definition& def) { return Apart(step, def).run(); }

}  // namespace forge::graph
