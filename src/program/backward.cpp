#include "program/backward.h"

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/pipeline.h"

namespace forge::program {

Backward backward(const ir::Definition& def) {
    ir::Function program = graph::differentiable(frontend::join(def));
    ir::Function adjoint = graph::optimize_gradient(graph::gradient(program, def));
    return {graph::gradient_interface(def), std::move(program), std::move(adjoint)};
}

Backward step_backward(const ir::Definition& def) {
    if (!def.step) throw InternalError("backward: '" + def.name + "' has no step");
    ir::Function program = graph::cse(graph::decompose(graph::widen(*def.step)));
    ir::Function adjoint = graph::dce(graph::gradient(program, def, graph::Unit::Token));
    return {graph::gradient_interface(def), std::move(program), std::move(adjoint)};
}

}  // namespace forge::program
