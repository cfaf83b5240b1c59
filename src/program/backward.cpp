#include "program/backward.h"

#include <algorithm>
#include <vector>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/pipeline.h"
#include "graph/stabilisers.h"

namespace forge::program {

namespace {

/// Gradients of states become no call's own; those of stabilisers are none at all. The values that they are made of.
std::vector<bool> without_gradients_of_states(ir::Definition& interface, const ir::Definition& def,
                                              const ir::Function& program) {
    std::set<std::string> states, stabilisers = graph::stabilisers(def);
    for (const ir::StateDecl& s : def.states) states.insert(graph::grad_name(s.name));
    for (const ir::LastRows& last : ir::last_rows(def)) states.insert(graph::grad_name(last.name));
    for (ir::StateDecl& s : interface.states) s.inner = states.contains(s.name);
    std::vector<bool> maxima = graph::stabilising_maxima(program, stabilisers);
    if (maxima.empty()) stabilisers.clear();
    std::erase_if(interface.states, [&](const ir::StateDecl& s) {
        return std::any_of(stabilisers.begin(), stabilisers.end(),
                           [&](const std::string& name) { return s.name == graph::grad_name(name); });
    });
    return maxima;
}

}  // namespace

Backward backward_of(const ir::Definition& def, const ir::PassRunner& passes, const std::set<std::string>* of,
                     bool to_inputs) {
    ir::Definition interface = graph::gradient_interface(def, of);
    const ir::Function joined = passes.run(ir::Pass::Join, [&] { return frontend::join(def); });
    ir::Function program = graph::differentiable(joined, passes);
    std::vector<bool> constant;
    if (to_inputs) constant = without_gradients_of_states(interface, def, program);
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
