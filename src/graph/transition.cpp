#include "graph/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "forge/error.h"
#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/known.h"
#include "ir/text.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Linear;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;
using Class = TransitionClass;

bool is_state(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }

/// Operands through which the op is linear while all others are fixed; nullopt: through none.
std::optional<std::vector<std::size_t>> linear_operands(const Op& op) {
    switch (ir::linear(op.code)) {
        case Linear::Sum:
        case Linear::Difference:
        case Linear::Product:
        case Linear::Contraction:
        case Linear::Weighted:
            return {{0, 1}};
        case Linear::Selected:
            return {{1, 2}};
        case Linear::Second:
            return {{1}};
        case Linear::Accumulated:
        case Linear::Subtracted:
            return {{0, 1, 2}};
        case Linear::Same:
        case Linear::Rearranged:
        case Linear::Negated:
        case Linear::Quotient:
        case Linear::Summed:
        case Linear::Masked:
            return {{0}};
        case Linear::Joined: {
            std::vector<std::size_t> all(op.args.size());
            std::iota(all.begin(), all.end(), std::size_t{0});
            return all;
        }
        case Linear::Opaque:
            return std::nullopt;
    }
    return std::nullopt;
}

/// c + a @ b or c - a @ b.
bool accumulates(const Op& op) {
    return ir::linear(op.code) == Linear::Accumulated || ir::linear(op.code) == Linear::Subtracted;
}

/// What stands between a state result and the states: for each value on the way, which states it reads.
class Analysis {
  public:
    explicit Analysis(const Function& fn) : fn_(fn), reads_(fn.ops.size()) {
        for (ValueId v = 0; v < fn.size(); ++v) {
            const Op& op = fn.op(v);
            if (is_state(op)) reads(v).insert(op.attrs.name);
            for (const ValueId a : op.args) reads(v).insert(reads(a).begin(), reads(a).end());
        }
    }

    [[nodiscard]] bool varies(ValueId v) const { return !reads_[static_cast<std::size_t>(v)].empty(); }
    [[nodiscard]] const std::set<std::string>& states_of(ValueId v) const {
        return reads_[static_cast<std::size_t>(v)];
    }

    /// The first op on the way to v that is not affine in the states.
    [[nodiscard]] std::optional<ValueId> obstacle(ValueId v) const {
        ir::Known<std::optional<ValueId>> known;
        return obstacle(v, known);
    }

  private:
    std::optional<ValueId> obstacle(ValueId v, ir::Known<std::optional<ValueId>>& known) const {
        return known.at(v, [&]() -> std::optional<ValueId> {
            if (!varies(v) || is_state(fn_.op(v))) return std::nullopt;
            for (const ValueId a : fn_.op(v).args)
                if (const auto found = obstacle(a, known)) return found;
            return is_affine(v) ? std::nullopt : std::optional(v);
        });
    }

    /// Whether an operation is affine in operands that vary, as far as they are affine in the states.
    [[nodiscard]] bool is_affine(ValueId v) const {
        const Op& op = fn_.op(v);
        const auto linear = linear_operands(op);
        int varying = 0;
        for (std::size_t i = 0; i < op.args.size(); ++i) {
            if (!varies(op.args[i])) continue;
            if (!linear || std::find(linear->begin(), linear->end(), i) == linear->end()) return false;
            varying += accumulates(op) && i == 2 ? 0 : 1;
        }
        return varying <= 1 || ir::is_additive(ir::linear(op.code));
    }

    std::set<std::string>& reads(ValueId v) { return reads_[static_cast<std::size_t>(v)]; }
    const Function& fn_;
    std::vector<std::set<std::string>> reads_;
};

/// Maps that multiply from one side, as matrices or as diagonals; numbers do from either.
bool is_from_left(Class c) {
    return c <= Class::DiagonalRows || c == Class::DiagonalMinusLowRankLeft || c == Class::DenseLeft;
}
bool is_from_right(Class c) {
    return c <= Class::Scalar || c == Class::DiagonalColumns || c == Class::DiagonalMinusLowRankRight ||
           c == Class::DenseRight;
}

/// The class of one map after another.
Class join(Class a, Class b) {
    if (a > b) std::swap(a, b);
    if (a <= Class::Scalar || a == b) return std::max(a, b);
    if (b <= Class::Elementwise) return Class::Elementwise;  // two diagonals, or one and a full matrix of factors
    const bool one_side = (is_from_left(a) && is_from_left(b)) || (is_from_right(a) && is_from_right(b));
    return one_side ? b : Class::Coupled;
}

/// The class of the sum of two maps.
Class sum(Class a, Class b) {
    if (a > b) std::swap(a, b);
    if (b <= Class::Elementwise) return join(join(a, b), Class::Scalar);
    const bool diagonal = a <= Class::Elementwise;
    if (is_from_left(a) && is_from_left(b)) return diagonal ? Class::DiagonalMinusLowRankLeft : Class::DenseLeft;
    if (is_from_right(a) && is_from_right(b)) return diagonal ? Class::DiagonalMinusLowRankRight : Class::DenseRight;
    return Class::Coupled;
}

/// The class of factors that a state of type `state` is multiplied by.
Class class_of_scale(const ir::Type& scale, const ir::Type& state) {
    if (state.rank() == 0) return Class::Scalar;
    const bool rows = scale.rank() == state.rank() && !(scale.shape[0] == Dim(1)),
               columns = scale.rank() > 0 && !(scale.shape.back() == Dim(1));
    if (state.rank() < 2) return scale.rank() == 0 || scale.shape[0] == Dim(1) ? Class::Scalar : Class::Elementwise;
    if (rows && columns) return Class::Elementwise;
    return rows ? Class::DiagonalRows : columns ? Class::DiagonalColumns : Class::Scalar;
}

/// The classes of the linear parts of values as maps of a state.
class Classes {
  public:
    Classes(const Function& fn, const Analysis& analysis, const ir::Type& state)
        : fn_(fn), analysis_(analysis), state_(state) {}

    Class of(ValueId v) {
        return known_.at(v, [&] { return is_state(fn_.op(v)) ? Class::Identity : of_op(fn_.op(v)); });
    }

  private:
    [[nodiscard]] bool varying(const Op& op, std::size_t i) const {
        return i < op.args.size() && analysis_.varies(op.args[i]);
    }

    Class of_op(const Op& op) {
        switch (ir::linear(op.code)) {
            case Linear::Product:
            case Linear::Quotient: {
                const std::size_t s = varying(op, 0) ? 0 : 1;
                return join(of(op.args[s]), class_of_scale(fn_.op(op.args[1 - s]).type, state_));
            }
            case Linear::Sum:
            case Linear::Difference:
                if (!varying(op, 0) || !varying(op, 1)) return of(op.args[varying(op, 0) ? 0 : 1]);
                return sum(of(op.args[0]), of(op.args[1]));
            case Linear::Accumulated:
            case Linear::Subtracted:
                if (!varying(op, 0) && !varying(op, 1)) return of(op.args[2]);
                return varying(op, 2) ? sum(of_product(op), of(op.args[2])) : of_product(op);
            case Linear::Contraction:
                return of_product(op);
            case Linear::Negated:
                return join(of(op.args[0]), Class::Scalar);
            case Linear::Same:
                return of(op.args[0]);
            case Linear::Opaque:
            case Linear::Rearranged:
            case Linear::Selected:
            case Linear::Joined:
            case Linear::Summed:
            case Linear::Masked:
            case Linear::Second:
            case Linear::Weighted:
                return Class::Coupled;  // affine, but in a form that mixes entries: no summary of a known shape
        }
        return Class::Coupled;
    }

    Class of_product(const Op& op) {
        const bool left = varying(op, 1);
        if (left ? op.attrs.trans_b : op.attrs.trans_a) return Class::Coupled;
        return join(of(op.args[left ? 1 : 0]), left ? Class::DenseLeft : Class::DenseRight);
    }

    const Function& fn_;
    const Analysis& analysis_;
    const ir::Type& state_;
    ir::Known<Class> known_;
};

Shape summary_shape(Class cls, const ir::Type& state) {
    Shape shape = state.shape;
    switch (cls) {
        case Class::Identity:
        case Class::Coupled:
        case Class::NotAffine:
            return {};
        case Class::Scalar:
            std::fill(shape.begin(), shape.end(), Dim(1));
            return shape;
        case Class::DiagonalRows:
            std::fill(shape.begin() + 1, shape.end(), Dim(1));
            return shape;
        case Class::DiagonalColumns:
            std::fill(shape.begin(), shape.end() - 1, Dim(1));
            return shape;
        case Class::Elementwise:
            return shape;
        case Class::DiagonalMinusLowRankLeft:
        case Class::DenseLeft:
            return {shape[0], shape[0]};
        case Class::DiagonalMinusLowRankRight:
        case Class::DenseRight:
            return {shape[1], shape[1]};
    }
    return {};
}

bool reads_tokens(const Function& fn, const Analysis& analysis, ValueId result) {
    // Every fixed operand of an op on the way from the state.
    const auto needed = ir::needed_for(fn, {result});
    std::vector<ValueId> coefficients;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (!needed[static_cast<std::size_t>(v)] || !analysis.varies(v) || ir::is_additive(ir::linear(op.code)))
            continue;
        const bool adds = accumulates(op);
        if (adds && !analysis.varies(op.args[0]) && !analysis.varies(op.args[1])) continue;  // the product is an addend
        for (std::size_t i = 0; i < op.args.size(); ++i)
            if (!analysis.varies(op.args[i]) && !(adds && i == 2)) coefficients.push_back(op.args[i]);
    }
    const auto read = ir::needed_for(fn, coefficients);
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (read[static_cast<std::size_t>(v)] && op.code == Opcode::Param &&
            (op.attrs.role == Role::Input || op.attrs.role == Role::Shifted))
            return true;
    }
    return false;
}

Transition transition_of(const Function& fn, const Analysis& analysis, const ir::Result& result) {
    Transition t;
    t.state = result.name;
    const auto stop = [&](Class cls, ValueId v) {
        t.cls = cls;
        t.obstacle = ir::print_op(fn, v);
        t.where = fn.op(v).where;
        return t;
    };
    if (const auto v = analysis.obstacle(result.value)) return stop(Class::NotAffine, *v);
    t.data_dependent = reads_tokens(fn, analysis, result.value);
    const ValueId param = [&] {
        for (ValueId v = 0; v < fn.size(); ++v)
            if (is_state(fn.op(v)) && fn.op(v).attrs.name == result.name) return v;
        return ir::kNoValue;
    }();
    for (const std::string& s : analysis.states_of(result.value))
        if (s != result.name) return stop(Class::Coupled, result.value);
    if (param == ir::kNoValue || !analysis.varies(result.value)) {  // the state is replaced: D = 0
        t.cls = Class::Scalar;
        t.summary = summary_shape(t.cls, fn.op(result.value).type);
        return t;
    }
    t.cls = Classes(fn, analysis, fn.op(param).type).of(result.value);
    if (t.cls == Class::Coupled) return stop(Class::Coupled, result.value);
    t.summary = summary_shape(t.cls, fn.op(param).type);
    return t;
}

/// Appends the linear part of state results to a copy of the program: the same ops on another carried value, with every
/// addend that does not depend on the state left out.
class LinearPart {
  public:
    enum class As : std::uint8_t { Transition, State };  ///< what carries factors and matrices: roles, or states
    LinearPart(const Function& program, Function& out, As as = As::Transition)
        : program_(program), out_(out), as_(as), analysis_(program) {}

    void append(const Transition& t, ValueId result) {
        if (t.cls == Class::Identity) return;
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
            if (varies(0)) return args[0];
            return difference ? ir::emit(out_, Opcode::Neg, {args[1]}, {}, op.where) : args[1];
        }
        if (accumulates(op)) return linear_accumulate(op, args);
        return ir::emit(out_, op.code, std::move(args), op.attrs, op.where, op.name);
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
    Analysis analysis_;
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

std::vector<ir::Result> state_results(const Function& program) {
    std::vector<ir::Result> results;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State) results.push_back(r);
    return results;
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

const char* to_string(TransitionClass cls) {
    switch (cls) {
        case Class::Identity:
            return "the identity";
        case Class::Scalar:
            return "a scalar";
        case Class::DiagonalRows:
            return "diagonal over rows";
        case Class::DiagonalColumns:
            return "diagonal over columns";
        case Class::Elementwise:
            return "elementwise";
        case Class::DiagonalMinusLowRankLeft:
            return "diagonal minus low rank, from the left";
        case Class::DiagonalMinusLowRankRight:
            return "diagonal minus low rank, from the right";
        case Class::DenseLeft:
            return "dense, from the left";
        case Class::DenseRight:
            return "dense, from the right";
        case Class::Coupled:
            return "coupled with other entries or states";
        case Class::NotAffine:
            return "not affine";
    }
    return "?";
}

std::string transition_spill(const std::string& state) { return state + ".transition"; }
std::string input_spill(const std::string& state) { return state + ".input"; }
std::string carry_spill(const std::string& state) { return state + ".carry"; }
std::string final_spill(const std::string& state) { return state + ".final"; }

std::string transition_name(const std::string& state) { return "transition_" + state; }

std::vector<Transition> transitions(const Function& program) {
    const Analysis analysis(program);
    std::vector<Transition> all;
    for (const ir::Result& r : state_results(program)) all.push_back(transition_of(program, analysis, r));
    return all;
}

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

bool has_axis(const ir::Type& type, const std::string& axis) {
    return std::any_of(type.shape.begin(), type.shape.end(), [&](const Dim& d) { return d.symbol == axis; });
}

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
        if (t.cls == Class::Identity) {
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
