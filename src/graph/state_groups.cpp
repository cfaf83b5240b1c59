#include "graph/state_groups.h"

#include <algorithm>
#include <map>

#include "graph/saved_states.h"
#include "graph/slice.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Result;
using ir::Role;
using ir::ValueId;
using Names = std::set<std::string>;

namespace {

/// Of each state all that it needs for its next value, itself among them.
class Needs {
  public:
    Needs(const Function& program, Role role) {
        const Role made = role == Role::Before ? Role::After : Role::State;
        const Names sums = has_saved_states(program) ? summed_states(program) : Names();
        for (const Result& r : program.results) {
            if (r.role != made || sums.contains(r.name)) continue;
            const auto needed = ir::needed_for(program, {r.value});
            Names& found = needs_[r.name];
            found.insert(r.name);
            for (std::size_t i = 0; i < program.ops.size(); ++i) {
                const Op& op = program.ops[i];
                if (needed[i] && op.code == Opcode::Param && op.attrs.role == role && !sums.contains(op.attrs.name))
                    found.insert(op.attrs.name);
            }
        }
        close();
    }

    [[nodiscard]] const std::map<std::string, Names>& all() const { return needs_; }

  private:
    void close() {
        for (bool grown = true; grown;) {
            grown = false;
            for (auto& [name, found] : needs_) {
                const std::size_t before = found.size();
                for (const std::string& other : Names(found))
                    if (const auto it = needs_.find(other); it != needs_.end())
                        found.insert(it->second.begin(), it->second.end());
                grown |= found.size() != before;
            }
        }
    }

    std::map<std::string, Names> needs_;
};

bool has_matrix(const Function& program, Role role, const Names& states) {
    return std::any_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
        return op.code == Opcode::Param && op.attrs.role == role && states.contains(op.attrs.name) &&
               op.type.rank() > 1 && !op.type.shape[0].is_constant();
    });
}

}  // namespace

std::vector<Names> state_groups(const Function& program, Role role) {
    const Needs needs(program, role);
    std::vector<std::pair<Names, Names>> groups;  // what a group needs, and the group
    for (const auto& [name, needed] : needs.all()) {
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == needed; });
        if (same == groups.end()) groups.push_back({needed, {name}});
        else same->second.insert(name);
    }
    // What needs another group needs all that this one does, and more.
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
    std::vector<Names> found;
    for (const auto& [needed, group] : groups) {
        const bool joins =
            !found.empty() && (!has_matrix(program, role, group) || !has_matrix(program, role, found.back()));
        if (joins) found.back().insert(group.begin(), group.end());
        else found.push_back(group);
    }
    return found;
}

bool has_state_groups(const Function& program) {
    return state_groups(program, Role::Before).size() > 1 || state_groups(program, Role::State).size() > 1;
}

}  // namespace forge::graph
