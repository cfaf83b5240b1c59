// a x for a vector x = sum(a * x) over rows; x yᵀ for vectors = x * y: products that matrix units would mostly multiply
// by nothing become elementwise work and sums. The sum of the rows of x yᵀ is sum(x) y.
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

class VectorProduct {
  public:
    VectorProduct(Function& out, const Op& op, const std::vector<ValueId>& args)
        : out_(out), op_(op), a_(args[0]), b_(args[1]) {}

    /// kNoValue: it is a product of matrices.
    ValueId run() {
        const bool inner = length(a_, contracted_of_first()) == Dim(1);
        if (inner) return emit(Opcode::Mul, {with_axis(first_vector(), 1), second_vector()});
        if (op_.type.shape[1] == Dim(1)) return with_axis(weighted(a_, op_.attrs.trans_a, second_vector()), 1);
        if (op_.type.shape[0] == Dim(1)) return with_axis(weighted(b_, !op_.attrs.trans_b, first_vector()), 0);
        return ir::kNoValue;
    }

  private:
    [[nodiscard]] std::int64_t contracted_of_first() const { return op_.attrs.trans_a ? 0 : 1; }
    [[nodiscard]] Dim length(ValueId v, std::int64_t axis) const {
        return out_.op(v).type.shape[static_cast<std::size_t>(axis)];
    }
    [[nodiscard]] ValueId emit(Opcode code, std::vector<ValueId> args, std::int64_t dim = 0) {
        Attrs attrs;
        if (code != Opcode::Mul) attrs.dim = dim;
        return ir::emit(out_, code, std::move(args), attrs, op_.where);
    }
    [[nodiscard]] ValueId with_axis(ValueId v, std::int64_t dim) { return emit(Opcode::Unsqueeze, {v}, dim); }
    [[nodiscard]] ValueId vector(ValueId v, std::int64_t dim) {
        const Op& op = out_.op(v);
        if (op.code == Opcode::Unsqueeze && op.attrs.dim == dim) return op.args[0];
        return emit(Opcode::Squeeze, {v}, dim);
    }
    /// The operand that is one row or column.
    [[nodiscard]] ValueId first_vector() {
        const bool outer = length(a_, contracted_of_first()) == Dim(1);
        return vector(a_, outer ? contracted_of_first() : 1 - contracted_of_first());
    }
    [[nodiscard]] ValueId second_vector() {
        const std::int64_t contracted = op_.attrs.trans_b ? 1 : 0;
        return vector(b_, length(b_, contracted) == Dim(1) ? contracted : 1 - contracted);
    }
    /// The sums of a matrix' columns, if `down`, else of its rows, each times its number of the vector.
    [[nodiscard]] ValueId weighted(ValueId matrix, bool down, ValueId weights) {
        const ValueId along = down ? with_axis(weights, 1) : weights;
        return emit(Opcode::Sum, {emit(Opcode::Mul, {matrix, along})}, down ? 0 : 1);
    }

    Function& out_;
    const Op& op_;
    ValueId a_, b_;
};

/// kNoValue: what is summed is no outer product.
ValueId sum_of_outer_product(Function& out, const Op& op, const std::vector<ValueId>& args) {
    const bool down = op.code == Opcode::Sum && op.attrs.dim == 0;
    const auto product = down ? outer_product(out, args[0]) : std::nullopt;
    if (!product) return ir::kNoValue;
    Attrs column;
    column.dim = 1;
    const ValueId numbers = ir::emit(out, Opcode::Squeeze, {product->column}, column, op.where);
    const ValueId sum = ir::emit(out, Opcode::Sum, {numbers}, op.attrs, op.where);
    return ir::emit(out, Opcode::Mul, {sum, product->vector}, {}, op.where, op.name);
}

}  // namespace

Function vector_products(const Function& fn) {
    bool any = false;
    Function out = ir::rebuild(fn, [&](Function& to, const Op& op, std::vector<ValueId> args) {
        if (!ir::is_matmul(op.code)) {
            const ValueId sum = sum_of_outer_product(to, op, args);
            any = any || sum != ir::kNoValue;
            return sum == ir::kNoValue ? ir::keep(to, op, std::move(args)) : sum;
        }
        const ValueId product = VectorProduct(to, op, args).run();
        if (product == ir::kNoValue) return ir::keep(to, op, std::move(args));
        any = true;
        if (args.size() < 3) return product;
        const Opcode sum = op.code == Opcode::MatmulSub ? Opcode::Sub : Opcode::Add;
        return ir::emit(to, sum, {args[2], product}, {}, op.where, op.name);
    });
    return any ? dce(cse(out)) : fn;
}

}  // namespace forge::graph
