#include "graph/channel_maps.h"

#include <algorithm>
#include <limits>
#include <map>

#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/known.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// The way from a state to what it is after a token, where that is a running maximum.
class Maximum {
  public:
    Maximum(const Function& fn, const std::string& state) : fn_(fn) {
        std::vector<ValueId> all;
        for (ValueId v = 0; v < fn.size(); ++v) {
            if (fn.op(v).code != Opcode::Param || fn.op(v).attrs.role != Role::State) continue;
            all.push_back(v);
            if (fn.op(v).attrs.name == state) state_ = v;
        }
        varies_ = ir::depends_on(fn, all);
    }

    /// Whether v is the maximum of the state, shifted, and of other numbers, or the state shifted alone.
    bool reaches(ValueId v) {
        return reached_.at(v, [&] { return v == state_ || goes_on(fn_.op(v), v); });
    }

    /// What is made of the state.
    [[nodiscard]] std::vector<bool> follows() const {
        return ir::depends_on(fn_, state_ == ir::kNoValue ? std::vector<ValueId>{} : std::vector<ValueId>{state_});
    }

    /// What v adds to the state where it is the largest, from `carried`, which came before: appended to a copy of the
    /// program.
    ValueId shift(Function& out, ValueId carried, ValueId v) {
        if (v == state_) return carried;
        if (const auto known = shifts_.find(v); known != shifts_.end()) return known->second;
        const Op op = fn_.op(v);
        std::vector<ValueId> args;
        for (const ValueId a : op.args) args.push_back(varies(a) ? shift(out, carried, a) : a);
        const auto forgotten = [&](std::size_t i) {
            return varies(op.args[i]) ? args[i]
                                      : ir::emit_constant(out, -std::numeric_limits<double>::infinity(), op.where);
        };
        if (op.code == Opcode::Maximum && !(varies(op.args[0]) && varies(op.args[1])))
            return shifts_[v] = args[varies(op.args[0]) ? 0 : 1];
        if (op.code == Opcode::Where) args = {args[0], forgotten(1), forgotten(2)};
        return shifts_[v] = ir::emit(out, op.code, std::move(args), op.attrs, op.where, op.name);
    }

  private:
    bool goes_on(const Op& op, ValueId v) {
        const auto fixed = [&](std::size_t i) { return !varies(op.args[i]); };
        const auto reached = [&](std::size_t i) { return reaches(op.args[i]); };
        switch (op.code) {
            case Opcode::Maximum:
                return varies(v) && (fixed(0) || reached(0)) && (fixed(1) || reached(1));
            case Opcode::Add:
                return (fixed(0) && reached(1)) || (reached(0) && fixed(1));
            case Opcode::Sub:
                return reached(0) && fixed(1);
            case Opcode::Where:
                return varies(v) && fixed(0) && (fixed(1) || reached(1)) && (fixed(2) || reached(2));
            default:
                return false;
        }
    }

    [[nodiscard]] bool varies(ValueId v) const { return varies_[static_cast<std::size_t>(v)]; }

    const Function& fn_;
    ValueId state_ = ir::kNoValue;
    std::vector<bool> varies_;  ///< with any state
    ir::Known<bool> reached_;
    std::map<ValueId, ValueId> shifts_;
};

}  // namespace

bool is_maximum(const Function& token, const std::string& state) {
    const ValueId after = token.result(state, Role::State);
    Maximum way(token, state);
    const auto needed = ir::needed_for(token, {after}), follows = way.follows();
    bool maximum = false;  // of the state, not of what is added to it
    for (std::size_t v = 0; v < token.ops.size(); ++v)
        maximum = maximum || (needed[v] && follows[v] && token.ops[v].code == Opcode::Maximum);
    return maximum && way.reaches(after);
}

bool has_map(const Function& token, const Transition& transition) {
    return (transition.composable() && !transition.is_matrix()) || is_maximum(token, transition.state);
}

Function channel_maps(const Function& token) {
    Function out = token;
    std::vector<std::string> affine;
    for (const Transition& t : transitions(token)) {
        if (t.composable()) {
            affine.push_back(t.state);
            continue;
        }
        const ValueId after = token.result(t.state, Role::State);
        Op start{Opcode::Param, {DType::F32, token.op(after).type.shape}, {}, {}, t.state + "_shift", {}, std::nullopt};
        start.attrs.name = t.state, start.attrs.role = Role::Ones;
        const ValueId carried = out.add(start);
        const ValueId shift = Maximum(token, t.state).shift(out, carried, after);
        if (shift != carried) out.results.push_back({t.state, Role::Ones, shift});
    }
    return with_transitions(out, affine);
}

}  // namespace forge::graph
