#include "graph/gradient_parts.h"

#include <algorithm>
#include <cmath>

#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::kNoValue;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

bool is_running_sum(const Op& op) { return op.code == Opcode::Cumsum && op.attrs.dim == 0; }

/// Whether every use of a value is the exponent of a decay, itself or summed over tokens.
bool only_in_exponents(const Function& program, ValueId v) {
    const auto users = ir::users_of(program);
    const auto results = ir::result_uses(program);
    const auto all = [&](ValueId x, auto&& is_exponent) {
        const auto& of_x = users[static_cast<std::size_t>(x)];
        return results[static_cast<std::size_t>(x)] == 0 && std::all_of(of_x.begin(), of_x.end(), is_exponent);
    };
    const auto is_exp = [&](ValueId u) { return program.op(u).code == Opcode::Exp; };
    return all(v, [&](ValueId u) {
        const Op& op = program.op(u);
        const bool sum = (op.code == Opcode::Cumsum || op.code == Opcode::Sum) && op.attrs.dim == 0;
        if (sum) return all(u, is_exp);
        const bool decays =
            op.code == Opcode::DecayMask || op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply;
        return is_exp(u) || (decays && op.args.back() == v && std::count(op.args.begin(), op.args.end(), v) == 1);
    });
}

class Parts {
  public:
    Parts(Function& out, const std::vector<ValueId>& parts) : out_(out), parts_(parts) {}

    /// Gradients of gates come as where(g == -inf, 0, x): one such condition for all parts.
    void take_conditions() {
        for (ValueId& part : parts_) {
            const Op& op = out_.op(part);
            if (op.code != Opcode::Where || !is_lost_gate(op.args[0]) || !is_zero(op.args[1])) continue;
            condition_ = op.args[0], part = op.args[2];
        }
    }

    ValueId sum() {
        merge_running_sums();
        ValueId total = parts_[0];
        for (std::size_t i = 1; i < parts_.size(); ++i) total = emit(Opcode::Add, {total, parts_[i]});
        return condition_ == kNoValue ? total : emit(Opcode::Where, {condition_, ir::emit_constant(out_, 0), total});
    }

  private:
    [[nodiscard]] bool is_lost_gate(ValueId condition) const {
        const Op& op = out_.op(condition);
        return op.code == Opcode::Eq && out_.op(op.args[1]).code == Opcode::Constant &&
               out_.op(op.args[1]).attrs.value == -HUGE_VAL;
    }
    [[nodiscard]] bool is_zero(ValueId v) const {
        return out_.op(v).code == Opcode::Constant && out_.op(v).attrs.value == 0;
    }

    ValueId emit(Opcode code, std::vector<ValueId> args, Attrs attrs = {}) {
        return ir::emit(out_, code, std::move(args), std::move(attrs));
    }

    /// All of them as one from the last token on, itself among them, and what else that takes.
    void merge_running_sums() {
        const auto rest = std::stable_partition(parts_.begin(), parts_.end(),
                                                [&](ValueId part) { return !is_running_sum(out_.op(part)); });
        const std::vector<ValueId> sums(rest, parts_.end());
        if (sums.size() < 2) return;
        parts_.erase(rest, parts_.end());
        ValueId summed = kNoValue;
        for (const ValueId part : sums) summed = with_term(summed, part);
        Attrs from_end;
        from_end.reverse = true;
        parts_.push_back(emit(Opcode::Cumsum, {summed}, from_end));
    }

    /// Another running sum's terms beside those of one from the end.
    ValueId with_term(ValueId summed, ValueId part) {
        const Op op = out_.op(part);
        const ValueId x = op.args[0];
        if (op.attrs.reverse) {
            if (op.attrs.exclusive) parts_.push_back(emit(Opcode::Neg, {x}));
            return with(summed, x, true);
        }
        if (!op.attrs.exclusive) parts_.push_back(x);
        parts_.push_back(over_tokens(emit(Opcode::Sum, {x}, Attrs{}), op.type));
        return with(summed, x, false);
    }

    /// One after the other, so that none need wait for another one.
    ValueId with(ValueId summed, ValueId x, bool positive) {
        const Op op = out_.op(x);
        if (op.code == Opcode::Sub) return with(with(summed, op.args[0], positive), op.args[1], !positive);
        if (summed == kNoValue) return positive ? x : emit(Opcode::Neg, {x});
        return emit(positive ? Opcode::Add : Opcode::Sub, {summed, x});
    }

    ValueId over_tokens(ValueId v, const ir::Type& type) {
        if (type.rank() > 1) v = emit(Opcode::Unsqueeze, {v}, Attrs{});
        return out_.add({Opcode::Expand, type, {v}, {}, "", {}, std::nullopt});
    }

    Function& out_;
    std::vector<ValueId> parts_;
    ValueId condition_ = kNoValue;
};

}  // namespace

ValueId summed_parts(Function& out, const Function& program, ValueId v, const std::vector<ValueId>& parts) {
    Parts summed(out, parts);
    if (only_in_exponents(program, v)) summed.take_conditions();
    return summed.sum();
}

}  // namespace forge::graph
