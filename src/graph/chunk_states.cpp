#include "graph/passes.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

/// The state before the chunk, as a parameter of a role; a new one where nothing in the program reads it.
ValueId state_before(Function& fn, const std::string& state, const Shape& shape, Role role) {
    for (ValueId v = 0; v < fn.size(); ++v) {
        const Op& op = fn.op(v);
        if (op.code == Opcode::Param && op.attrs.role == role && op.attrs.name == state) return v;
    }
    Op param{Opcode::Param, {DType::F32, shape}, {}, {}, "prev_" + state, {}, std::nullopt};
    param.attrs.name = state;
    param.attrs.role = role;
    return fn.add(std::move(param));
}

}  // namespace

Function with_chunk_states(const Function& program) {
    Function out = program;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State)
            out.results.push_back(
                {r.name, Role::Before, state_before(out, r.name, program.op(r.value).type.shape, Role::State)});
    return out;
}

Function with_given_states(const Function& program) {
    Function out = program;
    std::erase_if(out.results, [](const ir::Result& r) { return r.role == Role::After; });
    out = dce(out);
    for (const ir::Result& r : program.results)
        if (r.role == Role::After) state_before(out, r.name, program.op(r.value).type.shape, Role::Before);
    return out;
}

}  // namespace forge::graph
