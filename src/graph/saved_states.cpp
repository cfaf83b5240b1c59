#include "graph/saved_states.h"

#include <algorithm>

namespace forge::graph {

using ir::Op;
using ir::Result;
using ir::Role;

bool has_saved_states(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(),
                       [](const Op& op) { return op.code == ir::Opcode::Param && op.attrs.role == Role::Before; }) ||
           std::any_of(program.results.begin(), program.results.end(),
                       [](const Result& r) { return r.role == Role::After; });
}

}  // namespace forge::graph
