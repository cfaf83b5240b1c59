#include "program/backward.h"

#include <algorithm>
#include <vector>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/stabilisers.h"

namespace forge::program {
namespace {

/// The interface of calls that neither bring nor take gradients of states: they pass between chunks alone.
ir::Definition without_gradients_of_states(ir::Definition interface, const ir::Definition& def) {
    std::set<std::string> names;
    for (const ir::StateDecl& s : def.states) names.insert(graph::grad_name(s.name));
    for (const ir::LastRows& last : ir::last_rows(def)) names.insert(graph::grad_name(last.name));
    for (ir::StateDecl& s : interface.states) s.inner = names.contains(s.name);
    return interface;
}

/// The interface without the gradients of these states, which are zero.
ir::Definition without_gradients_of(const std::set<std::string>& states, ir::Definition interface) {
    std::set<std::string> names;
    for (const std::string& state : states) names.insert(graph::grad_name(state));
    std::erase_if(interface.states, [&](const ir::StateDecl& s) { return names.contains(s.name); });
    return interface;
}

/// The program of a definition's chunks, in a form that has gradients.
ir::Function program_of(const ir::Definition& def, const ir::PassRunner& passes) {
    const ir::Function joined = passes.run(ir::Pass::Join, [&] { return frontend::join(def); });
    return graph::differentiable(joined, passes);
}

/// With phases that follow from the step, which show what keeps exponents small, whatever the definition's own are.
ir::Definition with_phases_of_step(const ir::Definition& def) {
    if (def.derived) return def;
    try {
        ir::Definition made = graph::derive(def);
        made.derived = true;
        return made;
    } catch (const CompileError&) {
        return def;  // as it has no form over chunks
    }
}

}  // namespace

Backward backward_of(const ir::Definition& def, const ir::PassRunner& passes, const std::set<std::string>* of,
                     bool to_inputs) {
    ir::Definition interface = graph::gradient_interface(def, of);
    if (to_inputs) interface = without_gradients_of_states(std::move(interface), def);
    const std::set<std::string> stabilisers = to_inputs ? graph::stabilisers(def) : std::set<std::string>();
    const ir::Definition shown = stabilisers.empty() ? def : with_phases_of_step(def);
    ir::Function program = program_of(shown, passes);
    std::vector<bool> constant;  // values without gradients
    if (shown.derived) constant = graph::stabilising_maxima(program, stabilisers);
    if (!constant.empty()) interface = without_gradients_of(stabilisers, std::move(interface));
    ir::Function adjoint =
        passes.run(ir::Pass::Gradient, [&] { return graph::gradient_with_states(program, def, interface, constant); });
    return {std::move(interface), std::move(program), graph::optimize_gradient(std::move(adjoint), passes)};
}

Backward step_backward(const ir::Definition& def) {
    if (!def.step) throw InternalError("backward: '" + def.name + "' has no step");
    ir::Function program = graph::cse(graph::decompose(graph::widen(*def.step)));
    ir::Function adjoint = graph::dce(graph::gradient(program, def, graph::Unit::Token));
    return {graph::gradient_interface(def), std::move(program), std::move(adjoint)};
}

}  // namespace forge::program
