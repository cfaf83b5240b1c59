#include "tile/own_values.h"

#include <algorithm>

#include "graph/passes.h"
#include "tile/order.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_of_states(const ir::Result& r) { return is_carried(r.role) || r.role == Role::Before; }

/// What the results of states, or all others, need.
std::vector<bool> needed_for_states(const Function& fn, bool states) {
    std::vector<ValueId> roots;
    for (const ir::Result& r : fn.results)
        if (is_of_states(r) == states) roots.push_back(r.value);
    return ir::needed_for(fn, roots);
}

std::vector<bool> made_twice(const Function& fn, const std::string& axis) {
    std::vector<ValueId> states;
    for (ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == Opcode::Param && is_carried(fn.op(v).attrs.role)) states.push_back(v);
    const auto bound = ir::depends_on(fn, states), carried = needed_for_states(fn, true),
               others = needed_for_states(fn, false);
    std::vector<bool> twice;
    for (std::size_t i = 0; i < fn.ops.size(); ++i) {
        const Op& op = fn.ops[i];
        const bool of_axis =
            std::any_of(op.type.shape.begin(), op.type.shape.end(), [&](const Dim& d) { return d.symbol == axis; });
        const bool simple = (ir::is_elementwise(op.code) || ir::is_view(op.code)) && !op.args.empty();
        twice.push_back(of_axis && op.type.rank() == 2 && simple && carried[i] && others[i] && !bound[i]);
    }
    return twice;
}

}  // namespace

Function with_own_values(const Function& kernel, const std::string& axis) {
    const std::vector<bool> twice = made_twice(kernel, axis), carried = needed_for_states(kernel, true);
    Function out;
    out.name = kernel.name;
    std::vector<ValueId> first, second;  // of states, and of outputs
    for (ValueId v = 0; v < kernel.size(); ++v) {
        const auto i = static_cast<std::size_t>(v);
        const auto made = [&](const std::vector<ValueId>& of) {
            Op op = kernel.op(v);
            for (ValueId& a : op.args) a = of[static_cast<std::size_t>(a)];
            return out.add(std::move(op));
        };
        first.push_back(made(carried[i] ? first : second));
        second.push_back(twice[i] ? made(second) : first.back());
    }
    for (const ir::Result& r : kernel.results)
        out.results.push_back(
            {r.name, r.role, (is_of_states(r) ? first : second)[static_cast<std::size_t>(r.value)], r.at});
    return graph::dce(out);
}

}  // namespace forge::tile
