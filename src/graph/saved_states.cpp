#include "graph/saved_states.h"

#include <algorithm>
#include <set>

#include "graph/passes.h"

namespace forge::graph {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Result;
using ir::Role;
using ir::ValueId;

bool is_before(const Op& op) { return op.code == Opcode::Param && op.attrs.role == Role::Before; }

/// The states before the chunk that some values need.
std::set<std::string> needed_states(const Function& program, const std::vector<ValueId>& roots) {
    std::set<std::string> found;
    const auto needed = ir::needed_for(program, roots);
    for (ValueId v = 0; v < program.size(); ++v)
        if (needed[static_cast<std::size_t>(v)] && is_before(program.op(v))) found.insert(program.op(v).attrs.name);
    return found;
}

std::vector<ValueId> roots_backwards(const Function& program) {
    std::vector<ValueId> roots;
    for (const Result& r : program.results)
        if (r.role != Role::After) roots.push_back(r.value);
    return roots;
}

}  // namespace

std::string saved_spill(const std::string& state) { return "before:" + state; }

bool has_saved_states(const Function& program) {
    return std::any_of(program.ops.begin(), program.ops.end(), is_before) ||
           std::any_of(program.results.begin(), program.results.end(),
                       [](const Result& r) { return r.role == Role::After; });
}

Function states_forwards(const Function& program) {
    const std::set<std::string> saved = needed_states(program, roots_backwards(program));
    Function made = program;
    std::erase_if(made.results, [](const Result& r) { return r.role != Role::After; });
    for (Result& r : made.results) r.role = Role::State;
    for (ValueId v = 0; v < made.size(); ++v) {
        Op& op = made.op(v);
        if (!is_before(op)) continue;
        op.attrs.role = Role::State;
        if (saved.contains(op.attrs.name)) made.results.push_back({saved_spill(op.attrs.name), Role::Spill, v});
    }
    return dce(made);
}

Function rest_backwards(const Function& program) {
    Function made = program;
    std::erase_if(made.results, [](const Result& r) { return r.role == Role::After; });
    for (Op& op : made.ops) {
        if (!is_before(op)) continue;
        op.attrs.name = saved_spill(op.attrs.name);
        op.attrs.role = Role::Spill;
    }
    return dce(made);
}

}  // namespace forge::graph
