#include "graph/trailing_states.h"

#include <algorithm>
#include <vector>

#include "graph/gradient.h"
#include "graph/passes.h"
#include "graph/saved_states.h"
#include "graph/slice.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;

namespace {

/// The program with some values as parameters.
Function with_given(const Function& program, const std::vector<bool>& some) {
    Function out = program;
    for (ir::ValueId v = 0; v < out.size(); ++v) {
        Op& op = out.op(v);
        if (!some[static_cast<std::size_t>(v)] || op.code == Opcode::Param) continue;
        op.code = Opcode::Param, op.args.clear(), op.attrs = {};
        op.attrs.name = std::to_string(v), op.attrs.role = Role::Spill;
    }
    return out;
}

/// What makes the saved states, and the others that are carried, but for some.
Function scans_without(const Function& program, const std::set<std::string>& some, bool between) {
    Function scans = between ? with_given(program, made_between(program)) : program;
    std::erase_if(scans.results, [&](const ir::Result& r) {
        return r.role != Role::After && (r.role != Role::State || some.contains(r.name));
    });
    return dce(scans);
}

/// Whether the state is carried through maxima, and others are made with it, as those are that keep exponents small.
bool keeps_maximum(const Function& program, const std::string& state) {
    std::vector<ir::ValueId> before;
    for (ir::ValueId v = 0; v < program.size(); ++v)
        if (const Op& op = program.op(v);
            op.code == Opcode::Param && op.attrs.role == Role::Before && grad_name(op.attrs.name) == state)
            before.push_back(v);
    const auto follows = ir::depends_on(program, before);
    const auto is_made_with_it = [&](const ir::Result& r) {
        return r.role == Role::After && grad_name(r.name) != state && follows[static_cast<std::size_t>(r.value)];
    };
    if (std::none_of(program.results.begin(), program.results.end(), is_made_with_it)) return false;
    for (const ir::Result& r : program.results) {
        if (r.role != Role::After || grad_name(r.name) != state) continue;
        const auto needed = ir::needed_for(program, {r.value});
        for (std::size_t i = 0; i < program.ops.size(); ++i) {
            const Opcode code = program.ops[i].code;
            if (needed[i] && follows[i] && (code == Opcode::Maximum || code == Opcode::Amax)) return true;
        }
    }
    return false;
}

/// Whether the state's gradient is made of sums over the axis.
bool sums_over(const Function& program, const std::string& state, const std::string& axis) {
    for (const ir::Result& r : program.results) {
        if (r.role != Role::State || r.name != state) continue;
        const auto needed = ir::needed_for(program, {r.value});
        for (std::size_t i = 0; i < program.ops.size(); ++i) {
            const Op& op = program.ops[i];
            const auto reads = [&](ir::ValueId a) { return has_axis(program.op(a).type, axis); };
            if (needed[i] && !has_axis(op.type, axis) && std::any_of(op.args.begin(), op.args.end(), reads))
                return true;
        }
    }
    return false;
}

}  // namespace

std::vector<bool> made_between(const Function& program) {
    std::vector<ir::ValueId> before, after;
    for (ir::ValueId v = 0; v < program.size(); ++v)
        if (program.op(v).code == Opcode::Param && program.op(v).attrs.role == Role::Before) before.push_back(v);
    for (const ir::Result& r : program.results)
        if (r.role == Role::After) after.push_back(r.value);
    const auto reads = ir::depends_on(program, before), makes = ir::needed_for(program, after);
    const std::vector<Slice> marks = slices(program);
    std::vector<bool> found;
    for (std::size_t v = 0; v < program.ops.size(); ++v)
        found.push_back(reads[v] && !makes[v] && marks[v] == Slice::StateFree && program.ops[v].code != Opcode::Param);
    return found;
}

std::optional<std::set<std::string>> trailing_states(const Function& program, const std::string& axis, bool between,
                                                     Sums sums) {
    if (!has_saved_states(program)) return std::nullopt;
    std::set<std::string> apart = summed_states(program), trailing;
    for (const ir::Result& r : program.results)
        if (r.role == Role::State && !apart.contains(r.name) && !has_axis(program.op(r.value).type, axis))
            trailing.insert(r.name);
    const auto cancels = [&](const auto& name) {
        return keeps_maximum(program, name) && sums_over(program, name, axis);
    };
    if (std::any_of(trailing.begin(), trailing.end(), cancels)) return std::nullopt;
    apart.insert(trailing.begin(), trailing.end());
    const Function scans = scans_without(program, apart, between);
    const bool reads_trailing = std::any_of(scans.ops.begin(), scans.ops.end(), [&](const Op& op) {
        return op.code == Opcode::Param && op.attrs.role == Role::State && trailing.contains(op.attrs.name);
    });
    if (reads_trailing || !is_parallel(scans, axis, sums)) return std::nullopt;
    return trailing;
}

std::vector<std::string> axes_but_for_trailing_states(const Function& program, bool between, Sums sums) {
    std::vector<std::string> found;
    for (const ir::Result& r : program.results) {
        if (r.role != Role::State) continue;
        const Shape& shape = program.op(r.value).type.shape;
        for (auto d = shape.rbegin(); d != shape.rend(); ++d)
            if (!d->is_constant() && !std::count(found.begin(), found.end(), d->symbol) &&
                trailing_states(program, d->symbol, between, sums))
                found.push_back(d->symbol);
    }
    return found;
}

}  // namespace forge::graph
