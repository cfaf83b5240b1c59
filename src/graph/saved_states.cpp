#include "graph/saved_states.h"

#include <algorithm>
#include <vector>

#include "graph/passes.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Result;
using ir::Role;
using ir::ValueId;

namespace {

bool is_before(const Op& op) { return op.code == ir::Opcode::Param && op.attrs.role == Role::Before; }

bool reads_saved_states(const ir::Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(), is_before);
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

std::set<std::string> read_states(const Function& program) {
    std::set<std::string> states;
    std::size_t known = 0;
    do {
        known = states.size();
        std::vector<ValueId> values;
        for (const Result& r : program.results)
            if (r.role != Role::After || states.contains(r.name)) values.push_back(r.value);
        const std::vector<bool> needed = ir::needed_for(program, values);
        for (std::size_t v = 0; v < program.ops.size(); ++v)
            if (needed[v] && is_before(program.ops[v])) states.insert(program.ops[v].attrs.name);
    } while (states.size() > known);
    return states;
}

Function way_there(const Function& program, const std::set<std::string>& states) {
    Function out = program;
    out.results.clear();
    for (const Result& r : program.results)
        if (r.role == Role::After) out.results.push_back({r.name, Role::State, r.value});
    for (ValueId v = 0; v < out.size(); ++v) {
        Op& op = out.op(v);
        if (!is_before(op)) continue;
        op.attrs.role = Role::State;
        if (states.contains(op.attrs.name)) out.results.push_back({saved_spill(op.attrs.name), Role::Spill, v});
    }
    return dce(out);
}

Function way_back(const Function& program, const std::set<std::string>& states) {
    Function out = program;
    std::erase_if(out.results, [&](const Result& r) { return r.role == Role::After && !states.contains(r.name); });
    return dce(out);
}

Function with_spilled_states(const Function& program) {
    Function out = program;
    for (Op& op : out.ops)
        if (is_before(op)) op.attrs.role = Role::Spill, op.attrs.name = saved_spill(op.attrs.name);
    return out;
}

std::string saved_spill(const std::string& state) { return state + ".before"; }

}  // namespace forge::graph
