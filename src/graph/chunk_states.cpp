#include "graph/passes.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

/// The state before the chunk; a new parameter where nothing in the program reads it.
ValueId state_before(Function& fn, const ir::Result& state) {
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (op.code == Opcode::Param && op.attrs.role == Role::State && op.attrs.name == state.name) return v;
    }
    Op param{Opcode::Param, {DType::F32, fn.op(state.value).type.shape}, {}, {}, "prev_" + state.name, {},
             std::nullopt};
    param.attrs.name = state.name;
    param.attrs.role = Role::State;
    return fn.add(std::move(param));
}

}  // namespace

Function with_chunk_states(const Function& program) {
    Function out = program;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State) out.results.push_back({r.name, Role::Before, state_before(out, r)});
    return out;
}

}  // namespace forge::graph
