#include "graph/transition.h"

#include <algorithm>

#include "graph/affine.h"
#include "ir/infer.h"
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
    Classes(const Function& fn, const StateReads& analysis, const ir::Type& state)
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
    const StateReads& analysis_;
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

bool reads_tokens(const Function& fn, const StateReads& analysis, ValueId result) {
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

Transition transition_of(const Function& fn, const StateReads& analysis, const ir::Result& result) {
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

std::vector<Transition> transitions(const Function& program) {
    const StateReads analysis(program);
    std::vector<Transition> all;
    for (const ir::Result& r : state_results(program)) all.push_back(transition_of(program, analysis, r));
    return all;
}

}  // namespace forge::graph
