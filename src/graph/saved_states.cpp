#include "graph/saved_states.h"

#include <algorithm>

namespace forge::graph {

using ir::Op;
using ir::Result;
using ir::Role;

namespace {

bool reads_saved_states(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(),
                       [](const Op& op) { return op.code == ir::Opcode::Param && op.attrs.role == Role::Before; });
}
bool makes_saved_states(const ir::Function& program) {
    return std::any_of(program.results.begin(), program.results.end(),
                       [](const Result& r) { return r.role == Role::After; });
}

}  // namespace

bool has_saved_states(const ir::Function& program) {
    return reads_saved_states(program) || makes_saved_states(program);
}

bool has_given_states(const ir::Function& program) {
    return reads_saved_states(program) && !makes_saved_states(program);
}

}  // namespace forge::graph
