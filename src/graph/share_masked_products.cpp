// a bᵀ that is there serves for a product with some rows of b masked, too: a where(rows, b, 0)ᵀ = where(columns, a bᵀ,
// 0).
#include <algorithm>
#include <optional>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

bool is_zero(const Op& op) { return op.code == Opcode::Constant && op.attrs.value == 0; }

/// Of a condition that is the same for all columns: what it is for each row.
std::optional<ValueId> condition_of_rows(const Function& fn, ValueId condition) {
    const Op& op = fn.op(condition);
    const Op& column = op.code == Opcode::To ? fn.op(op.args[0]) : op;
    return column.code == Opcode::Unsqueeze && column.attrs.dim == 1 ? std::optional(column.args[0]) : std::nullopt;
}

class MaskedProducts {
  public:
    explicit MaskedProducts(const Function& fn) : fn_(fn) {}

    Function run() const {
        std::vector<ValueId> map;
        return ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const bool shared = is_masked(op) && has_product(op);
            map.push_back(shared ? of_whole(out, op, map) : ir::keep(out, op, std::move(args)));
            return map.back();
        });
    }

  private:
    [[nodiscard]] bool is_masked(const Op& op) const {
        if (op.code != Opcode::Matmul || !op.attrs.trans_b) return false;
        const Op& rows = fn_.op(op.args[1]);
        return rows.code == Opcode::Where && is_zero(fn_.op(rows.args[2])) && condition_of_rows(fn_, rows.args[0]);
    }
    [[nodiscard]] bool has_product(const Op& masked) const {
        const ValueId whole = fn_.op(masked.args[1]).args[1];
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) {
            return op.code == Opcode::Matmul && op.args[0] == masked.args[0] && op.args[1] == whole &&
                   op.attrs == masked.attrs;
        });
    }

    /// Common subexpressions have the product already.
    ValueId of_whole(Function& out, const Op& op, const std::vector<ValueId>& map) const {
        const auto mapped = [&](ValueId v) { return map[static_cast<std::size_t>(v)]; };
        const Op& rows = fn_.op(op.args[1]);
        const Op& condition = fn_.op(rows.args[0]);
        const ValueId product =
            ir::emit(out, Opcode::Matmul, {mapped(op.args[0]), mapped(rows.args[1])}, op.attrs, op.where);
        Attrs first;
        first.dim = 0;
        ValueId columns =
            ir::emit(out, Opcode::Unsqueeze, {mapped(*condition_of_rows(fn_, rows.args[0]))}, first, op.where);
        if (condition.code == Opcode::To) columns = ir::emit(out, Opcode::To, {columns}, condition.attrs, op.where);
        return ir::emit(out, Opcode::Where, {columns, product, mapped(rows.args[2])}, {}, op.where, op.name);
    }

    const Function& fn_;
};

}  // namespace

Function share_masked_products(const Function& fn) { return dce(cse(MaskedProducts(fn).run())); }

}  // namespace forge::graph
