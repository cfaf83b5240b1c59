#include "frontend/own_functions.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "ir/text.h"

namespace forge::frontend {
namespace {

/// A function in text form, as one that is called.
CompositionFunction function_of_text(const ir::Function& fn) {
    CompositionFunction made;
    for (const ir::Op& op : fn.ops)
        if (op.code == ir::Opcode::Param) made.args.push_back(op.attrs.name), made.where = op.where;
    made.fn = [fn, names = made.args](const std::vector<Tensor>& given) {
        const Arguments arguments = [&](const std::string& name) {
            return given[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
        };
        Tensor like;
        for (const Tensor& x : given) like = x;
        if (!like.trace())
            throw RuntimeError(fmt::format("compose: @{} takes nothing; expected an input of a token", fn.name));
        std::vector<std::pair<std::string, Tensor>> named;
        for (const ir::Result& r : fn.results) named.emplace_back(r.name, replayed(fn, r.value, arguments, like));
        Results results(named.size() == 1 ? named[0].second : Tensor());
        const bool single = named.size() == 1 && (named[0].first == "mask" || named[0].first == "o");
        if (!single) results.single = Tensor(), results.named = std::move(named);
        return results;
    };
    return made;
}

OwnTransition returned_by_transition(const TokenParts& token) {
    const CompositionFunction& given = token.parts.transition;
    std::vector<Tensor> args;
    for (const std::string& name : given.args) args.push_back(token[name]);
    const Results results = given.fn(args);
    OwnTransition own;
    if (results.single.trace()) {
        (results.single.rank() == 2 ? own.matrix : own.diagonal) = results.single;
        return own;
    }
    for (const auto& [name, x] : results.named) {
        Tensor* const part = name == "diagonal" ? &own.diagonal
                             : name == "left"   ? &own.left
                             : name == "right"  ? &own.right
                             : name == "matrix" ? &own.matrix
                             : name == "angle"  ? &own.angle
                                                : nullptr;
        if (part) *part = x;
        else own.states.emplace_back(name, x);
    }
    return own;
}

void check_transition(const OwnTransition& own, const TokenParts& token) {
    const auto fault = [&](const std::string& what, const std::string& expected, const Tensor& at) {
        if (at.id() < 0) return;  // a mistake that is told already
        const ir::Op& op = at.trace()->fn.op(at.id());
        const Location& given = token.parts.transition.where;
        const Location& place = op.code == ir::Opcode::Param && given.known() ? given : op.where;
        throw CompileError(Diagnostic{"transition: " + what, expected, to_string(op.type), place, ""});
    };
    const Dim keys = token["k"].size(-1), angles = [&] {
        for (const auto& [name, x] : token.arguments)
            if (name == "prev_angle") return x.size(-1);
        return Dim(0);
    }();
    const auto of_keys = [&](const Tensor& x) { return x.rank() == 1 && x.size(0) == keys; };
    if (own.diagonal.trace() && own.diagonal.rank() != 0 && !of_keys(own.diagonal))
        fault("the diagonal is not along the keys", fmt::format("a number, or [{}]", to_string(keys)), own.diagonal);
    if (own.left.trace().get() != own.right.trace().get())
        fault("left and right come together: diag(diagonal) + left rightᵀ", "both",
              own.left.trace() ? own.left : own.right);
    for (const Tensor& x : {own.left, own.right})
        if (x.trace() && !of_keys(x)) fault("left and right are vectors along the keys", to_string(Shape{keys}), x);
    if (own.matrix.trace() && (own.matrix.rank() != 2 || own.matrix.size(0) != keys || own.matrix.size(1) != keys))
        fault("the matrix does not take keys to keys", to_string(Shape{keys, keys}), own.matrix);
    if (own.matrix.trace() && (own.diagonal.trace() || own.left.trace() || own.angle.trace()))
        fault("a matrix is all of a transition", "matrix alone", own.matrix);
    if (own.angle.trace() && (own.angle.rank() != 1 || own.angle.size(0) != angles))
        fault("there is an angle for each pair of channels", to_string(Shape{angles}), own.angle);
    if (own.angle.trace() && (own.left.trace() || (own.diagonal.trace() && own.diagonal.rank() != 0)))
        fault("what turns pairs of channels does not commute with it", "angle, and a diagonal that is a number",
              own.left.trace() ? own.left : own.diagonal);
    std::vector<std::string> missing;
    for (const ir::StateDecl& s : token.parts.states)
        if (std::none_of(own.states.begin(), own.states.end(), [&](const auto& r) { return r.first == s.name; }))
            missing.push_back(s.name);
    if (!missing.empty())
        throw CompileError(Diagnostic{fmt::format("transition: the next '{}' is not returned", missing[0]),
                                      "a value for every state of its own", "", token.parts.transition.where, ""});
}

}  // namespace

void take_functions(Composition& made, const std::string& text) {
    const ir::Fragment fragment = ir::parse_fragment(text, "functions");
    for (const ir::InputDecl& in : fragment.declared.inputs) {
        if (in.role == ir::Role::Scalar)
            throw RuntimeError(fmt::format("compose: scalar '{}': expected an input of tokens or per head", in.name));
        made.inputs.push_back({in.name, in.type.shape, in.range, in.type.dtype});
    }
    for (const ir::StateDecl& s : fragment.declared.states) made.states.push_back({s.name, s.type.shape});
    for (const ir::Function& fn : fragment.functions) {
        if (fn.name != "mask" && fn.name != "transition")
            throw RuntimeError(fmt::format("compose: functions: expected @mask and @transition, got @{}", fn.name));
        (fn.name == "mask" ? made.mask : made.transition) = function_of_text(fn);
    }
}

ir::Function traced_mask(const CompositionFunction& mask, const std::vector<ir::InputDecl>& inputs, Here here) {
    const auto trace = std::make_shared<Trace>("mask");
    std::vector<Tensor> args;
    for (const std::string& name : mask.args) {
        ir::Attrs attrs;
        attrs.name = name;
        ir::Type type{DType::F32, {}};
        const std::string base = without_place(name, inputs);
        for (const ir::InputDecl& in : inputs)
            if (in.name == base) type = ir::step_type(in), type.dtype = DType::F32, attrs.role = in.role;
        args.push_back(trace->record(ir::Opcode::Param, {}, attrs, mask.where.known() ? mask.where : here, type));
    }
    const Results results = mask.fn(args);
    const Tensor m = results.single.trace() || results.named.empty() ? results.single : results.named[0].second;
    if (!trace->diagnostics.empty()) throw CompileError(std::move(trace->diagnostics));
    if (m.trace() != trace || m.id() < 0)
        throw CompileError(Diagnostic{"mask: no result", "a number or a condition of i and j", "", here, ""});
    trace->fn.results.push_back({"mask", ir::Role::Input, m.id()});
    return std::move(trace->fn);
}

bool returns_angles(const CompositionFunction& transition, const ChosenParts& parts) {
    auto [K, V] = dims("K", "V");
    const auto trace = std::make_shared<Trace>("transition");
    std::vector<Tensor> args;
    for (const std::string& name : transition.args) {
        ir::Type type{DType::F32, {}};
        if (name == "q" || name == "k") type.shape = {2 * K};
        if (name == "v") type.shape = {V};
        for (const ir::InputDecl& in : parts.inputs)
            if (in.name == name) type = ir::step_type(in), type.dtype = DType::F32;
        for (const ir::StateDecl& s : parts.states)
            if (name == "prev_" + s.name) type.shape = s.type.shape;
        ir::Attrs attrs;
        attrs.name = name;
        args.push_back(trace->record(ir::Opcode::Param, {}, attrs, Location{}, type));
    }
    const Results results = transition.fn(args);
    return std::any_of(results.named.begin(), results.named.end(), [](const auto& r) { return r.first == "angle"; });
}

OwnTransition transition_of(const TokenParts& token) {
    OwnTransition own = returned_by_transition(token);
    check_transition(own, token);
    return own;
}

}  // namespace forge::frontend
