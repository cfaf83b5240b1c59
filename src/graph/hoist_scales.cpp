// Scales of rows and columns leave the operands of products, so that products read inputs as they came: a scale along
// the result's rows or columns is applied to the result, one along the contraction to the other operand.
//
//     (k * r[:, None]) @ s       ->  (k @ s) * r[:, None]
//     (k * r[:, None])^T @ u     ->  k^T @ (u * r[:, None])
//     p @ (v * r[:, None])       ->  (p * r[None, :]) @ v, of a p that follows from a product
//
// Numbers go to the result, too, and so do scales of its columns, but where that takes more registers than are left
// beside what it is added to: then to the operand that comes from registers.
//
// For back ends whose products take inputs straight from memory as 16-bit numbers, and have results in registers, where
// a scale costs next to nothing.
#include "graph/passes.h"
#include "graph/scales.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// An operand as a matrix times scales along its rows, its columns, or neither.
struct Peeled {
    ValueId matrix;
    std::vector<ValueId> rows, cols, both;
};

Peeled peel(const Function& fn, ValueId v) {
    Peeled p{v, {}, {}, {}};
    while (const auto part = scaled(fn, p.matrix)) {
        (part->axis == 0 ? p.rows : part->axis == 1 ? p.cols : p.both).push_back(part->scale);
        p.matrix = part->matrix;
    }
    return p;
}

bool is_input(const Function& fn, ValueId v) {
    return fn.op(v).code == Opcode::Param && fn.op(v).attrs.role == ir::Role::Input;
}

/// What takes no scale along the contraction: a group that makes outputs finds it where the one that holds it has put
/// it, as it is.
bool is_held_state(const Function& fn, ValueId v) {
    return fn.op(v).code == Opcode::Param && fn.op(v).attrs.role == ir::Role::State;
}

ValueId times(Function& out, ValueId v, const std::vector<ValueId>& scales) {
    for (const ValueId s : scales) v = ir::emit(out, Opcode::Mul, {v, s}, {}, out.op(v).where);
    return v;
}

/// A scale along one axis of a matrix, for the other axis or the same.
ValueId along(Function& out, ValueId scale, int axis) {
    const Op op = out.op(scale);
    const std::optional<int> now = scale_axis(op.type);
    if (*now == axis || *now < 0) return scale;
    if (op.type.rank() == 1) {  // along the columns as it stands
        Attrs attrs;
        attrs.dim = 1;
        return ir::emit(out, Opcode::Unsqueeze, {scale}, attrs, op.where);
    }
    Attrs attrs;
    attrs.perm = {1, 0};
    return ir::emit(out, Opcode::Permute, {scale}, attrs, op.where);
}

std::vector<ValueId> along(Function& out, std::vector<ValueId> scales, int axis) {
    for (ValueId& s : scales) s = along(out, s, axis);
    return scales;
}

/// Whether a matrix is what elementwise work makes of a product, for which a scale more costs nothing.
bool is_made_of_product(const Function& fn, ValueId v) {
    return ir::comes_from(
        fn, v, [&](ValueId u) { return ir::is_matmul(fn.op(u).code); },
        [&](ValueId u) { return ir::is_elementwise(fn.op(u).code) || fn.op(u).code == Opcode::Tril; });
}

class Hoisting {
  public:
    Hoisting(std::string value_axis, const std::map<std::string, std::int64_t>& sizes)
        : value_axis_(std::move(value_axis)), sizes_(sizes) {}

    ValueId visit(Function& out, const Op& op, std::vector<ValueId> args) const {
        if (!ir::is_matmul(op.code)) return ir::keep(out, op, std::move(args));
        Peeled a = peel(out, args[0]), b = peel(out, args[1]);
        if (!is_input(out, a.matrix)) a = {args[0], {}, {}, {}};
        if (!is_input(out, b.matrix)) b = {args[1], {}, {}, {}};
        if (a.matrix == args[0] && b.matrix == args[1]) return ir::keep(out, op, std::move(args));
        const std::vector<ValueId>&a_outer = op.attrs.trans_a ? a.cols : a.rows,
              &a_inner = op.attrs.trans_a ? a.rows : a.cols;
        const std::vector<ValueId>&b_outer = op.attrs.trans_b ? b.rows : b.cols,
              &b_inner = op.attrs.trans_b ? b.cols : b.rows;
        // Along the contraction: to the operand that comes from registers.
        const bool right = !value_axis_.empty() && op.type.shape[1].symbol == value_axis_;
        ValueId left_operand = a.matrix, right_operand = b.matrix;
        if (is_wide(op)) {
            for (auto* both : {&a.both, &b.both}) {
                a.matrix = right ? a.matrix : times(out, a.matrix, *both);
                b.matrix = right ? times(out, b.matrix, *both) : b.matrix;
                both->clear();
            }
            if (right) {  // it comes from registers, which has fewer numbers than the result
                b.matrix = times(out, b.matrix, b_outer);
                (op.attrs.trans_b ? b.rows : b.cols).clear();
            }
            left_operand = a.matrix, right_operand = b.matrix;
        }
        if (right && b.matrix != args[1] && is_made_of_product(out, args[0])) {
            left_operand = times(out, args[0], along(out, b_inner, op.attrs.trans_a ? 0 : 1));
        } else if (right && is_held_state(out, args[1])) {
            left_operand = times(out, a.matrix, a_inner);
        } else if (right) {
            right_operand = times(out, times(out, b.matrix, b_inner), along(out, a_inner, op.attrs.trans_b ? 1 : 0));
        } else {
            left_operand = times(out, times(out, a.matrix, a_inner), along(out, b_inner, op.attrs.trans_a ? 0 : 1));
        }
        std::vector<ValueId> outer = along(out, a_outer, 0);
        for (const ValueId s : along(out, b_outer, 1)) outer.push_back(s);
        for (const auto* both : {&a.both, &b.both}) outer.insert(outer.end(), both->begin(), both->end());
        return with_outer(out, op, left_operand, right_operand, outer, args);
    }

  private:
    /// Sums of products need registers for the addend, too, unless the product is accumulated onto it.
    [[nodiscard]] bool is_wide(const Op& op) const {
        constexpr std::int64_t kNumbers = 128 * 64;  // of 64 registers
        std::int64_t numbers = 1;
        for (const Dim& d : op.type.shape) {
            const auto size = sizes_.find(d.symbol);
            numbers *= d.factor * (size == sizes_.end() ? 1 : size->second);
        }
        return op.code == Opcode::Matmul ? numbers > kNumbers : numbers >= kNumbers;
    }

    /// The product with its outer scales; a sum with a product is made over if one stands in the way.
    static ValueId with_outer(Function& out, const Op& op, ValueId a, ValueId b, const std::vector<ValueId>& outer,
                              const std::vector<ValueId>& args) {
        Op product = op;
        if (outer.empty()) {
            std::vector<ValueId> operands = args;
            operands[0] = a, operands[1] = b;
            return ir::keep(out, product, operands);
        }
        const bool sum = args.size() == 3;
        if (sum) product.code = Opcode::Matmul;
        const ValueId scaled_product = times(out, ir::keep(out, product, {a, b}), outer);
        if (!sum) return scaled_product;
        const Op addend = out.op(args[2]);
        if (op.code == Opcode::MatmulAdd && addend.code == Opcode::Matmul && addend.attrs.tri != ir::Tri::OutLower)
            return ir::emit(out, Opcode::MatmulAdd, {addend.args[0], addend.args[1], scaled_product}, addend.attrs,
                            op.where, op.name);
        return ir::emit(out, op.code == Opcode::MatmulAdd ? Opcode::Add : Opcode::Sub, {args[2], scaled_product}, {},
                        op.where, op.name);
    }

    std::string value_axis_;
    const std::map<std::string, std::int64_t>& sizes_;
};

}  // namespace

Function hoist_scales(const Function& fn, const std::string& value_axis,
                      const std::map<std::string, std::int64_t>& sizes) {
    const Hoisting hoisting(value_axis, sizes);
    return dce(cse(ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        return hoisting.visit(out, op, std::move(args));
    })));
}

}  // namespace forge::graph
