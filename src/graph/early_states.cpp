#include "graph/early_states.h"

#include <algorithm>

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

bool is_carried_state(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::State; }

/// Of each value, whether it reads a state that is none of these.
std::vector<bool> reads_another(const Function& program, const std::set<std::string>& states) {
    std::vector<ValueId> others;
    for (ValueId v = 0; v < program.size(); ++v)
        if (is_carried_state(program.op(v)) && !states.contains(program.op(v).attrs.name)) others.push_back(v);
    return ir::depends_on(program, others);
}

}  // namespace

std::set<std::string> early_states(const Function& program, std::set<std::string> of) {
    for (std::size_t before = of.size() + 1; before != of.size();) {
        before = of.size();
        const auto reads = reads_another(program, of);
        for (const ir::Result& r : program.results)
            if (r.role == Role::State && reads[static_cast<std::size_t>(r.value)]) of.erase(r.name);
    }
    return of;
}

Function without_early_states(const Function& program, const std::set<std::string>& early) {
    Function rest = program;
    for (Op& op : rest.ops)
        if (is_carried_state(op) && early.contains(op.attrs.name)) op.attrs.role = Role::Spill;
    std::erase_if(rest.results, [&](const ir::Result& r) {
        return (r.role == Role::State || r.role == Role::Before) && early.contains(r.name);
    });
    return rest;
}

}  // namespace forge::graph
