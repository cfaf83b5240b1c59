#include "program/backward.h"

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/pipeline.h"

namespace forge::program {

Backward backward_of(const ir::Definition& def, const ir::PassRunner& passes, const std::set<std::string>* of) {
    ir::Definition interface = graph::gradient_interface(def, of);
    const ir::Function joined = passes.run(ir::Pass::Join, [&] { return frontend::join(def); });
    ir::Function program = graph::differentiable(joined, passes);
    ir::Function adjoint =
        passes.run(ir::Pass::Gradient, [&] { return graph::gradient_with_states(program, def, interface); });
    return {std::move(interface), std::move(program), graph::optimize_gradient(std::move(adjoint), passes)};
}

Backward step_backward(const ir::Definition& def) {
    if (!def.step) throw InternalError("backward: '" + def.name + "' has no step");
    ir::Function program = graph::cse(graph::decompose(graph::widen(*def.step)));
    ir::Function adjoint = graph::dce(graph::gradient(program, def, graph::Unit::Token));
    return {graph::gradient_interface(def), std::move(program), std::move(adjoint)};
}

}  // namespace forge::program
