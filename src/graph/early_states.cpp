#include "graph/early_states.h"

#include <algorithm>

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

/// Of a program that goes back, also those that are made on the way there (graph/saved_states.h).
bool is_carried_state(const Op& op) {
    return op.code == Opcode::Param && (op.attrs.role == Role::State || op.attrs.role == Role::Before);
}
bool is_next_value(const ir::Result& r) { return r.role == Role::State || r.role == Role::After; }

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
            if (is_next_value(r) && reads[static_cast<std::size_t>(r.value)]) of.erase(r.name);
    }
    return of;
}

namespace {

std::vector<ValueId> next_values(const Function& program, const std::set<std::string>& states) {
    std::vector<ValueId> values;
    for (const ir::Result& r : program.results)
        if (is_next_value(r) && states.contains(r.name)) values.push_back(r.value);
    return values;
}

std::vector<bool> depends_on_states(const Function& program, const std::set<std::string>& states) {
    std::vector<ValueId> params;
    for (ValueId v = 0; v < program.size(); ++v)
        if (is_carried_state(program.op(v)) && states.contains(program.op(v).attrs.name)) params.push_back(v);
    return ir::depends_on(program, params);
}

/// The state, and all that its updates need.
std::set<std::string> needed_states(const Function& program, const std::string& name) {
    std::set<std::string> found = {name};
    for (std::size_t before = 0; before != found.size();) {
        before = found.size();
        const auto needed = ir::needed_for(program, next_values(program, found));
        for (ValueId v = 0; v < program.size(); ++v)
            if (needed[static_cast<std::size_t>(v)] && is_carried_state(program.op(v)))
                found.insert(program.op(v).attrs.name);
    }
    return found;
}

/// Whether matrices of tokens are made of the states `before` for the scan of others.
bool adds_matrices(const Function& program, const std::set<std::string>& before, const std::set<std::string>& states) {
    const auto needed = ir::needed_for(program, next_values(program, states)),
               of_before = depends_on_states(program, before), bound = depends_on_states(program, states);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const Shape& shape = program.ops[i].type.shape;
        const bool matrix = shape.size() == 2 && shape[0].symbol == ir::kChunkSymbol && !shape[1].is_constant();
        if (needed[i] && of_before[i] && !bound[i] && matrix) return true;
    }
    return false;
}

}  // namespace

std::vector<std::set<std::string>> early_groups(const Function& program, const std::set<std::string>& early) {
    std::vector<std::set<std::string>> groups;
    std::set<std::string> done;
    while (done.size() < early.size()) {
        std::set<std::string> least;  // of those that are left, what needs the fewest others that are
        for (const std::string& name : early) {
            if (done.contains(name)) continue;
            std::set<std::string> group = needed_states(program, name);
            for (const std::string& other : done) group.erase(other);
            if (least.empty() || group.size() < least.size()) least = group;
        }
        if (groups.empty() || adds_matrices(program, done, least)) groups.emplace_back();
        groups.back().insert(least.begin(), least.end());
        done.insert(least.begin(), least.end());
    }
    return groups;
}

bool add_matrices_to_others(const Function& program, const std::set<std::string>& early) {
    std::set<std::string> others;
    for (const ir::Result& r : program.results)
        if (is_next_value(r) && !early.contains(r.name)) others.insert(r.name);
    return adds_matrices(program, early, others);
}

Function without_early_states(const Function& program, const std::set<std::string>& early) {
    Function rest = program;
    for (Op& op : rest.ops)
        if (is_carried_state(op) && early.contains(op.attrs.name)) op.attrs.role = Role::Spill;
    std::erase_if(rest.results, [&](const ir::Result& r) {
        return (is_next_value(r) || r.role == Role::Before) && early.contains(r.name);
    });
    return rest;
}

}  // namespace forge::graph
