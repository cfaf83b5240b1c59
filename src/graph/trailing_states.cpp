#include "graph/trailing_states.h"

#include <algorithm>
#include <vector>

#include "graph/passes.h"
#include "graph/saved_states.h"
#include "graph/slice.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;

namespace {

/// What makes the saved states, and the others that are carried, but for some.
Function scans_without(const Function& program, const std::set<std::string>& some) {
    Function scans = program;
    std::erase_if(scans.results, [&](const ir::Result& r) {
        return r.role != Role::After && (r.role != Role::State || some.contains(r.name));
    });
    return dce(scans);
}

}  // namespace

std::optional<std::set<std::string>> trailing_states(const Function& program, const std::string& axis) {
    if (!has_saved_states(program)) return std::nullopt;
    std::set<std::string> apart = summed_states(program), trailing;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State && !apart.contains(r.name) && !has_axis(program.op(r.value).type, axis))
            trailing.insert(r.name);
    apart.insert(trailing.begin(), trailing.end());
    const Function scans = scans_without(program, apart);
    const bool cut = std::all_of(scans.ops.begin(), scans.ops.end(), [&](const Op& op) {
        const bool reads_trailing =
            op.code == Opcode::Param && op.attrs.role == Role::State && trailing.contains(op.attrs.name);
        return !reads_trailing && is_parallel(scans, op, axis);
    });
    if (!cut) return std::nullopt;
    return trailing;
}

std::vector<std::string> axes_but_for_trailing_states(const Function& program) {
    std::vector<std::string> found;
    for (const ir::Result& r : program.results) {
        if (r.role != Role::State) continue;
        const Shape& shape = program.op(r.value).type.shape;
        for (auto d = shape.rbegin(); d != shape.rend(); ++d)
            if (!d->is_constant() && !std::count(found.begin(), found.end(), d->symbol) &&
                trailing_states(program, d->symbol))
                found.push_back(d->symbol);
    }
    return found;
}

}  // namespace forge::graph
