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

/// (sum(x * (a b)) + rest) * r, with sums over rows: what the gradient of a decay r of rows is.
struct ScaledRowSum {
    ValueId x, a, b, r, rest;  ///< rest: may be kNoValue
    bool trans_b;              ///< of the product
};

class Sharing {
  public:
    explicit Sharing(const Function& fn) : fn_(fn), users_(ir::users_of(fn)), results_(ir::result_uses(fn)) {}

    Function run() const {
        std::vector<ValueId> map;
        return ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const auto sum = found(op);
            const bool shared = sum && has_product(*sum);
            map.push_back(shared ? rewritten(out, op, *sum, map) : ir::keep(out, op, std::move(args)));
            return map.back();
        });
    }

  private:
    [[nodiscard]] bool used_once(ValueId v) const {
        return users_[static_cast<std::size_t>(v)].size() == 1 && results_[static_cast<std::size_t>(v)] == 0;
    }

    [[nodiscard]] std::optional<ScaledRowSum> found(const Op& op) const {
        if (op.code != Opcode::Mul || op.type.rank() != 1) return {};
        for (std::size_t i = 0; i < 2; ++i) {
            const ValueId r = op.args[1 - i];
            if (const auto sum = row_sum(op.args[i], r, ir::kNoValue)) return sum;
            const Op& terms = fn_.op(op.args[i]);
            if (terms.code != Opcode::Add || !used_once(op.args[i])) continue;
            for (std::size_t j = 0; j < 2; ++j)
                if (const auto sum = row_sum(terms.args[j], r, terms.args[1 - j])) return sum;
        }
        return {};
    }

    [[nodiscard]] std::optional<ScaledRowSum> row_sum(ValueId v, ValueId r, ValueId rest) const {
        const Op& sum = fn_.op(v);
        if (sum.code != Opcode::Sum || sum.attrs.dim != 1 || !used_once(v) || !used_once(sum.args[0])) return {};
        const Op& terms = fn_.op(sum.args[0]);
        if (terms.code != Opcode::Mul) return {};
        for (std::size_t i = 0; i < 2; ++i) {
            const Op& product = fn_.op(terms.args[i]);
            if (product.code == Opcode::Matmul && !product.attrs.trans_a && used_once(terms.args[i]))
                return ScaledRowSum{terms.args[1 - i],    product.args[0], product.args[1], r, rest,
                                    product.attrs.trans_b};
        }
        return {};
    }

    /// Whether the program makes (x * r) b^T anyway.
    [[nodiscard]] bool has_product(const ScaledRowSum& s) const {
        return std::any_of(fn_.ops.begin(), fn_.ops.end(), [&](const Op& op) {
            return op.code == Opcode::Matmul && !op.attrs.trans_a && op.args[1] == s.b &&
                   op.attrs.trans_b != s.trans_b && scaled(fn_.op(op.args[0]), s);
        });
    }
    [[nodiscard]] bool scaled(const Op& op, const ScaledRowSum& s) const {
        const auto is_scale = [&](ValueId v) {
            const Op& scale = fn_.op(v);
            return scale.code == Opcode::Unsqueeze && scale.attrs.dim == 1 && scale.args[0] == s.r;
        };
        return op.code == Opcode::Mul &&
               ((op.args[0] == s.x && is_scale(op.args[1])) || (op.args[1] == s.x && is_scale(op.args[0])));
    }

    /// sum(a * ((x * r) b^T)): common subexpressions have the product already.
    static ValueId rewritten(Function& out, const Op& op, const ScaledRowSum& s, const std::vector<ValueId>& map) {
        const auto mapped = [&](ValueId v) { return map[static_cast<std::size_t>(v)]; };
        Attrs rows, transposed;
        rows.dim = 1;
        transposed.trans_b = !s.trans_b;
        const ValueId scale = ir::emit(out, Opcode::Unsqueeze, {mapped(s.r)}, rows, op.where);
        const ValueId x = ir::emit(out, Opcode::Mul, {mapped(s.x), scale}, {}, op.where);
        const ValueId product = ir::emit(out, Opcode::Matmul, {x, mapped(s.b)}, transposed, op.where);
        const ValueId terms = ir::emit(out, Opcode::Mul, {product, mapped(s.a)}, {}, op.where);
        const ValueId sum = ir::emit(out, Opcode::Sum, {terms}, rows, op.where, op.name);
        if (s.rest == ir::kNoValue) return sum;
        const ValueId rest = ir::emit(out, Opcode::Mul, {mapped(s.rest), mapped(s.r)}, {}, op.where);
        return ir::emit(out, Opcode::Add, {sum, rest}, {}, op.where, op.name);
    }

    const Function& fn_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
};

}  // namespace

Function share_products(const Function& fn) { return Sharing(fn).run(); }

}  // namespace forge::graph
