#include "tile/legalize.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "tile/layout.h"

namespace forge::tile {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Layout;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

Function with_sizes(Function fn, const Sizes& sizes) {
    for (Op& op : fn.ops) op.type = tile::with_sizes(std::move(op.type), sizes);
    return fn;
}

bool is_number(const Op& op) {
    return op.code == Opcode::Constant || op.code == Opcode::Identity || op.code == Opcode::Arange ||
           (op.code == Opcode::Param && op.type.rank() == 0 &&
            (op.attrs.role == Role::Scalar || op.attrs.role == Role::Head));
}

ValueId copied(Function& out, ValueId v) {
    return ir::emit(out, Opcode::Copy, {v}, {}, out.op(v).where, out.op(v).name);
}

/// Dense rows whose padding may be read: what device functions take.
bool dense(const Function& fn, ValueId v, const Rules& rules) {
    const Op& op = fn.op(v);
    const Layout l = eventual_layout(fn, v, rules);
    const std::int64_t width = rules.vector_width;
    if (!contiguous_rows(op.type, l)) return false;
    return op.type.rank() < 2 ||
           l.strides[l.strides.size() - 2] >= (size_of(op.type, op.type.rank() - 1) + width - 1) / width * width;
}

class Legalizer {
  public:
    explicit Legalizer(const Rules& rules) : rules_(rules) {}

    ValueId visit(Function& out, const Op& op, std::vector<ValueId> args) const {
        if (ir::is_elementwise(op.code) || args.empty()) return ir::keep(out, op, std::move(args));
        for (ValueId& a : args)
            if (is_number(out.op(a))) a = copied(out, a);
        if (ir::is_view(op.code) || op.code == Opcode::Copy) return ir::keep(out, op, std::move(args));
        return ir::is_matmul(op.code) ? product(out, op, std::move(args))
                                      : ir::keep(out, op, with_dense_rows(out, std::move(args)));
    }

  private:
    [[nodiscard]] std::vector<ValueId> with_dense_rows(Function& out, std::vector<ValueId> args) const {
        for (ValueId& a : args)
            if (!dense(out, a, rules_)) a = copied(out, a);
        return args;
    }

    /// The first operand may have any strides; the second must be dense (in shared memory: may too), so a transposed
    /// one is copied.
    ValueId product(Function& out, const Op& op, std::vector<ValueId> args) const {
        Op plain = op;
        if (op.attrs.trans_b) {
            Attrs attrs;
            attrs.perm = {1, 0};
            args[1] = ir::emit(out, Opcode::Permute, {args[1]}, attrs, op.where);
            plain.attrs.trans_b = false;
        }
        if (!rules_.shared_memory && !dense(out, args[1], rules_)) args[1] = copied(out, args[1]);
        if (args.size() == 3 && !dense(out, args[2], rules_)) args[2] = copied(out, args[2]);
        return ir::keep(out, plain, std::move(args));
    }

    Rules rules_;
};

/// Makes vectors that only a result reads, as its row (unsqueeze along the first axis), in that form: they are stored
/// from where they are made.
class AsRows {
  public:
    explicit AsRows(Function& fn) : fn_(fn), users_(ir::users_of(fn)) {}

    /// The result's value; `value` where it is no such row.
    ValueId result(ValueId value) const {
        const Op& row = fn_.op(value);
        const bool is_row = row.code == Opcode::Unsqueeze && row.attrs.dim == 0 && row.type.rank() == 2;
        return is_row && users_[index(value)].empty() && is_made_for_one(row.args[0]) ? made(row.args[0]) : value;
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
    [[nodiscard]] bool is_made_for_one(ValueId v) const {
        return ir::is_elementwise(fn_.op(v).code) && fn_.op(v).type.rank() == 1 && users_[index(v)].size() == 1 &&
               std::none_of(fn_.results.begin(), fn_.results.end(), [&](const ir::Result& r) { return r.value == v; });
    }
    ValueId made(ValueId v) const {
        const Op op = fn_.op(v);
        std::vector<ValueId> args;
        for (const ValueId a : op.args) args.push_back(is_made_for_one(a) ? made(a) : row(a));
        return ir::emit(fn_, op.code, std::move(args), op.attrs, op.where, op.name);
    }
    ValueId row(ValueId v) const {
        if (fn_.op(v).type.rank() == 0) return v;
        if (is_number(fn_.op(v))) v = copied(fn_, v);
        Attrs attrs;
        attrs.dim = 0;
        return ir::emit(fn_, Opcode::Unsqueeze, {v}, attrs, fn_.op(v).where);
    }

    Function& fn_;
    std::vector<std::vector<ValueId>> users_;
};

/// Results are stored from buffers of their own: not from views that are not dense, not from parameters, but for inputs
/// and states that pass to other kernels as they are.
Function with_stored_results(Function fn, const Rules& rules) {
    const AsRows as_rows(fn);
    for (ir::Result& r : fn.results) r.value = as_rows.result(r.value);
    fn = graph::dce(fn);
    for (ir::Result& r : fn.results) {
        const Op& op = fn.op(r.value);
        const bool passes = op.code == Opcode::Param && (op.attrs.role == Role::State || op.attrs.role == Role::Input);
        if ((r.role == Role::Spill && passes) || r.role == Role::Before) continue;
        if (is_number(fn.op(r.value)) || fn.op(r.value).code == Opcode::Param || ir::is_view(fn.op(r.value).code) ||
            !dense(fn, r.value, rules))
            r.value = copied(fn, r.value);
    }
    return fn;
}

}  // namespace

ir::Type with_sizes(ir::Type type, const Sizes& sizes) {
    for (Dim& d : type.shape) {
        if (d.is_constant()) continue;
        const auto it = sizes.find(d.symbol);
        if (it == sizes.end()) throw InternalError(fmt::format("lower: no size for '{}'", d.symbol));
        d = Dim(d.factor * it->second);
    }
    return type;
}

Function legalize(const Function& fn, const Sizes& sizes, const Rules& rules) {
    const Legalizer legalizer(rules);
    const Function legal =
        ir::rebuild(with_sizes(fn, sizes), [&](Function& out, const Op& op, std::vector<ValueId> args) {
            return legalizer.visit(out, op, std::move(args));
        });
    return with_stored_results(graph::dce(graph::cse(legal)), rules);
}

}  // namespace forge::tile
