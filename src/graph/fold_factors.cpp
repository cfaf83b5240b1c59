// A product with an inverse, which carried states wait for, is made ahead of them:
//
//     a @ (t @ x)           ->  (a @ t) @ x
//     a^T @ ((t @ x) * r)   ->  ((t * r)^T @ a)^T @ x      r a scale of rows, or none
//
// for a square t that follows from an inverse, where a, t and r need neither states nor the value axis, and nothing but
// such products reads t @ x. So the delta rule's s d + k^T (t (v - k s)) has two products that wait for each other
// rather than three. Of a rounding to 16 bits, too, less is left: that of x counts as it is, and not multiplied by t,
// whose numbers are large and cancel where keys are alike.
#include <algorithm>
#include <set>

#include "graph/passes.h"
#include "graph/scales.h"
#include "graph/slice.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

class Folding {
  public:
    Folding(const Function& fn, const std::string& value_axis)
        : fn_(fn), axis_(value_axis), marks_(slices(fn)), users_(ir::users_of(fn)), results_(ir::result_uses(fn)) {
        for (ValueId v = 0; v < fn.size(); ++v)
            if (is_solved(v)) find_readers(v);
    }

    Function run() const {
        ValueId next = 0;
        return ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            return readers_.contains(next++) ? folded(out, op, std::move(args)) : ir::keep(out, op, std::move(args));
        });
    }

  private:
    static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

    /// Whether a value is made for all chunks at once, and by one task for all tiles.
    [[nodiscard]] bool is_ahead(ValueId v) const {
        return marks_[index(v)] == Slice::StateFree && !has_axis(fn_.op(v).type, axis_);
    }

    /// t @ x for a square t that follows from an inverse.
    [[nodiscard]] bool is_solved(ValueId v) const {
        const Op& op = fn_.op(v);
        if (op.code != Opcode::Matmul || op.attrs.trans_a || op.attrs.trans_b || is_ahead(v)) return false;
        const ir::Type& t = fn_.op(op.args[0]).type;
        return is_ahead(op.args[0]) && t.shape[0] == t.shape[1] &&
               ir::comes_from(
                   fn_, op.args[0], [&](ValueId u) { return fn_.op(u).code == Opcode::Inverse; },
                   [&](ValueId u) { return fn_.op(u).code == Opcode::Mul; });
    }

    /// Whether a value is read as the second operand of a product that can be folded, and not otherwise.
    [[nodiscard]] bool multiplies(ValueId user, ValueId v) const {
        const Op& op = fn_.op(user);
        return ir::is_matmul(op.code) && !op.attrs.trans_b && op.args[1] == v &&
               std::count(op.args.begin(), op.args.end(), v) == 1 && is_ahead(op.args[0]);
    }

    /// Whether it is t @ x scaled by rows, for such products alone.
    [[nodiscard]] bool scales(ValueId user, ValueId v) const {
        const auto scale = scaled(fn_, user);
        return scale && scale->matrix == v && scale->axis == 0 && is_ahead(scale->scale) &&
               results_[index(user)] == 0 &&
               std::all_of(users_[index(user)].begin(), users_[index(user)].end(),
                           [&](ValueId reader) { return multiplies(reader, user); });
    }

    void find_readers(ValueId v) {
        std::set<ValueId> found;
        for (const ValueId user : users_[index(v)]) {
            if (multiplies(user, v)) found.insert(user);
            else if (scales(user, v)) found.insert(users_[index(user)].begin(), users_[index(user)].end());
            else return;
        }
        if (results_[index(v)] == 0) readers_.merge(found);
    }

    static ValueId folded(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto scale = scaled(out, args[1]);
        const Op solved = out.op(scale ? scale->matrix : args[1]);
        ValueId t = solved.args[0];
        if (scale) t = ir::emit(out, Opcode::Mul, {t, scale->scale}, {}, op.where);
        Op product = op;
        Attrs ahead;
        ahead.trans_a = op.attrs.trans_a;
        const bool triangle = op.attrs.tri == ir::Tri::ALower || op.attrs.tri == ir::Tri::AUpper;
        if (triangle && !op.attrs.trans_a) ahead.tri = op.attrs.tri;
        if (triangle && solved.attrs.tri != op.attrs.tri) product.attrs.tri = ir::Tri::None;
        args[0] = ir::emit(out, Opcode::Matmul, op.attrs.trans_a ? std::vector{t, args[0]} : std::vector{args[0], t},
                           ahead, op.where);
        args[1] = solved.args[1];
        return ir::keep(out, product, std::move(args));
    }

    const Function& fn_;
    std::string axis_;
    std::vector<Slice> marks_;
    std::vector<std::vector<ValueId>> users_;
    std::vector<int> results_;
    std::set<ValueId> readers_;  ///< products that are folded
};

}  // namespace

Function fold_factors(const Function& fn, const std::string& value_axis) {
    return dce(cse(Folding(fn, value_axis).run()));
}

}  // namespace forge::graph
