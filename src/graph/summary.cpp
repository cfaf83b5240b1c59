#include "graph/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "forge/error.h"
#include "graph/affine.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "ir/infer.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// Appends the linear part of state results to a copy of the program: the same ops on another carried value, with every
/// addend that does not depend on the state left out.
class LinearPart {
  public:
    enum class As : std::uint8_t { Transition, State };  ///< what carries factors and matrices: roles, or states
    LinearPart(const Function& program, Function& out, As as = As::Transition)
        : program_(program), out_(out), as_(as), analysis_(program) {}

    void append(const Transition& t, ValueId result) {
        if (t.cls == TransitionClass::Identity) return;
        Op start{Opcode::Param,           {DType::F32, t.summary},   {},          {},
                 t.state + "_transition", program_.op(result).where, std::nullopt};
        start.attrs.name = as_ == As::State ? transition_name(t.state) : t.state;
        start.attrs.role = as_ == As::State ? Role::State : t.is_matrix() ? Role::Eye : Role::Ones;
        carried_ = out_.add(start);
        map_.clear();
        ValueId d = linear(result);
        if (d == ir::kNoValue) d = ir::emit(out_, Opcode::Mul, {carried_, ir::emit_constant(out_, 0)});
        out_.results.push_back({start.attrs.name, start.attrs.role, d});
    }

  private:
    ValueId linear(ValueId v) {
        if (!analysis_.varies(v)) return ir::kNoValue;
        if (const auto it = map_.find(v); it != map_.end()) return it->second;
        const Op& op = program_.op(v);
        return map_[v] = is_state(op) ? carried_ : linear_op(op);
    }

    ValueId linear_op(const Op& op) {
        std::vector<ValueId> args;
        for (const ValueId a : op.args) {
            const ValueId l = linear(a);
            args.push_back(l != ir::kNoValue ? l : a);  // values of the program keep their numbers in `out_`
        }
        const auto varies = [&](std::size_t i) { return analysis_.varies(op.args[i]); };
        const bool difference = ir::linear(op.code) == Linear::Difference;
        if ((difference || ir::linear(op.code) == Linear::Sum) && !(varies(0) && varies(1))) {
            if (varies(0)) return expanded(args[0], program_.op(op.args[0]).type, op);
            const ValueId right = expanded(args[1], program_.op(op.args[1]).type, op);
            return difference ? ir::emit(out_, Opcode::Neg, {right}, {}, op.where) : right;
        }
        if (accumulates(op)) return linear_accumulate(op, args);
        return ir::emit(out_, op.code, std::move(args), op.attrs, op.where, op.name);
    }

    /// An operand without the addend along whose axes it was broadcast.
    ValueId expanded(ValueId v, const ir::Type& from, const Op& sum) {
        ir::Type type = out_.op(v).type;
        if (from.rank() != sum.type.rank() || type.rank() != from.rank()) return v;
        for (std::size_t axis = 0; axis < from.shape.size(); ++axis)
            if (from.shape[axis] == Dim(1)) type.shape[axis] = sum.type.shape[axis];
        if (type == out_.op(v).type) return v;
        return out_.add({Opcode::Expand, type, {v}, {}, "", sum.where, std::nullopt});
    }

    ValueId linear_accumulate(const Op& op, const std::vector<ValueId>& args) {
        const bool product = analysis_.varies(op.args[0]) || analysis_.varies(op.args[1]),
                   addend = analysis_.varies(op.args[2]);
        if (product && addend) return ir::emit(out_, op.code, args, op.attrs, op.where, op.name);
        if (addend) return args[2];
        const ValueId p = ir::emit(out_, Opcode::Matmul, {args[0], args[1]}, op.attrs, op.where, op.name);
        return op.code == Opcode::MatmulAdd ? p : ir::emit(out_, Opcode::Neg, {p}, {}, op.where);
    }

    const Function& program_;
    Function& out_;
    As as_;
    StateReads analysis_;
    ValueId carried_ = ir::kNoValue;
    std::map<ValueId, ValueId> map_;
};

ValueId param(Function& fn, const std::string& name, Role role, const ir::Type& type) {
    Op op{Opcode::Param, type, {}, {}, "", {}, std::nullopt};
    op.attrs.name = name;
    op.attrs.role = role;
    op.name = name;
    return fn.add(std::move(op));
}

/// CompileError if some of the transitions have no summary. `who` asks for summaries, `otherwise` does without them.
void check_composable(const std::vector<Transition>& all, const char* who, const char* otherwise) {
    std::vector<Diagnostic> obstacles;
    for (const Transition& t : all)
        if (!t.composable())
            obstacles.push_back({fmt::format("{}: the transition of state '{}' is {}", who, t.state, to_string(t.cls)),
                                 "a decay that is affine in this state alone", t.obstacle, t.where, otherwise});
    if (!obstacles.empty()) throw CompileError(std::move(obstacles));
}

std::vector<Transition> composable_transitions(const Function& program) {
    std::vector<Transition> all = transitions(program);
    check_composable(all, "segments",
                     "use a strategy that goes through the chunks in order: one-pass, fused or decoupled");
    return all;
}

}  // namespace

std::string transition_spill(const std::string& state) { return state + ".transition"; }
std::string input_spill(const std::string& state) { return state + ".input"; }
std::string carry_spill(const std::string& state) { return state + ".carry"; }
std::string final_spill(const std::string& state) { return state + ".final"; }

std::string transition_name(const std::string& state) { return "transition_" + state; }

Function summary(const Function& program) {
    const auto all = composable_transitions(program);
    Function out = program;
    out.name = program.name + "_summaries";
    out.results.clear();
    LinearPart linear(program, out);
    std::size_t i = 0;
    for (const ir::Result& r : state_results(program)) {
        out.results.push_back(r);
        linear.append(all[i++], r.value);
    }
    return dce(cse(canonicalize(out)));
}

Function input_summary(const Function& program) {
    Function out = program;
    out.name = program.name + "_summaries";
    out.results = state_results(program);
    return dce(cse(canonicalize(out)));
}

namespace {

/// Whether v is 0 where all `varying` is, as a sum of products that have one such factor each; no operand is shifted in
/// from another chunk.
bool is_homogeneous(const Op& op, const std::vector<bool>& varying) {
    const auto varies = [&](std::size_t i) { return varying[static_cast<std::size_t>(op.args[i])]; };
    if (op.code == Opcode::Param) return op.attrs.role == Role::State || op.attrs.role == Role::Input;
    const auto linear = linear_operands(op);
    if (!linear) return false;
    if (accumulates(op)) return varies(0) != varies(1) && varies(2);
    int through = 0;
    for (std::size_t i = 0; i < op.args.size(); ++i) {
        if (!varies(i)) continue;
        if (std::find(linear->begin(), linear->end(), i) == linear->end()) return false;
        ++through;
    }
    return ir::is_additive(ir::linear(op.code)) ? through == static_cast<int>(linear->size()) : through == 1;
}

}  // namespace

bool acts_on_columns(const Function& program, const std::string& axis) {
    const Function fn = input_summary(program);
    std::optional<Dim> rows;
    for (const Transition& t : transitions(fn)) {
        const Shape& shape = fn.op(fn.result(t.state, Role::State)).type.shape;
        const bool fits = t.composable() && t.multiplies_left() && shape.size() == 2 && shape[1] == Dim(axis) &&
                          !has_axis({DType::F32, {shape[0]}}, axis);
        if (!fits || rows.value_or(shape[0]) != shape[0]) return false;
        rows = shape[0];
    }
    std::vector<bool> varying;
    for (const Op& op : fn.ops) {
        const bool source = op.code == Opcode::Param && (is_state(op) || has_axis(op.type, axis));
        varying.push_back(source || std::any_of(op.args.begin(), op.args.end(),
                                                [&](ValueId a) { return varying[static_cast<std::size_t>(a)]; }));
        if (varying.back() && !is_homogeneous(op, varying)) return false;
    }
    return rows.has_value();
}

Function with_transitions(const Function& program, const std::vector<std::string>& states) {
    std::vector<Transition> all = transitions(program);
    std::erase_if(
        all, [&](const Transition& t) { return std::find(states.begin(), states.end(), t.state) == states.end(); });
    check_composable(all, "segments", "use a strategy that goes through the chunks in order: one-pass");
    Function out = program;
    LinearPart linear(program, out);
    for (const Transition& t : all) linear.append(t, program.result(t.state, Role::State));
    return dce(cse(canonicalize(out)));
}

Function rank_summary(const Function& program, const std::vector<std::string>& carried) {
    std::vector<Transition> all = transitions(program);
    std::erase_if(
        all, [&](const Transition& t) { return std::find(carried.begin(), carried.end(), t.state) == carried.end(); });
    check_composable(all, "summary", "ranks pass such states on one after the other: scheme = serial");
    Function out = program;
    out.name = program.name + "_summary";
    out.results.clear();
    LinearPart linear(program, out, LinearPart::As::State);
    for (const Transition& t : all) {
        const ValueId result = program.result(t.state, Role::State);
        out.results.push_back({t.state, Role::State, result});
        linear.append(t, result);
    }
    for (const ir::Result& r : program.results)  // what a program that goes backwards makes again
        if (r.role == Role::After) out.results.push_back(r);
    return dce(cse(canonicalize(out)));
}

Function carry(const Function& program) {
    const auto all = composable_transitions(program);
    Function out;
    out.name = program.name + "_carries";
    std::size_t i = 0;
    for (const ir::Result& r : state_results(program)) {
        const Transition& t = all[i++];
        const ir::Type type{DType::F32, program.op(r.value).type.shape};
        const ValueId s = param(out, r.name, Role::State, type), b = param(out, input_spill(r.name), Role::Spill, type);
        ValueId next = ir::kNoValue;
        if (t.cls == TransitionClass::Identity) {
            next = ir::emit(out, Opcode::Add, {s, b});
        } else {
            const ValueId d = param(out, transition_spill(r.name), Role::Spill, {DType::F32, t.summary});
            if (t.is_matrix())
                next = ir::emit(out, Opcode::MatmulAdd, {t.multiplies_left() ? d : s, t.multiplies_left() ? s : d, b});
            else next = ir::emit(out, Opcode::Add, {ir::emit(out, Opcode::Mul, {s, d}), b});
        }
        out.results.push_back({carry_spill(r.name), Role::Spill, s});
        out.results.push_back({r.name, Role::State, next});
    }
    return out;
}

}  // namespace forge::graph
