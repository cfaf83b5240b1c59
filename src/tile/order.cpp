#include "tile/order.h"

#include <algorithm>

#include "ir/rebuild.h"

namespace forge::tile {

using ir::Function;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_carried(Role role) { return role == Role::State || role == Role::Ones || role == Role::Eye; }

Function with_carried_params(Function fn) {
    for (const ir::Result& r : fn.results) {
        const auto is_it = [&](const ir::Op& op) {
            return op.code == Opcode::Param && op.attrs.role == r.role && op.attrs.name == r.name &&
                   op.attrs.at == r.at;
        };
        if (!is_carried(r.role) || std::any_of(fn.ops.begin(), fn.ops.end(), is_it)) continue;
        ir::Op param{Opcode::Param, fn.op(r.value).type, {}, {}, "prev_" + r.name, fn.op(r.value).where, std::nullopt};
        param.attrs.name = r.name;
        param.attrs.role = r.role;
        param.attrs.at = r.at;
        fn.add(std::move(param));
    }
    return fn;
}

Function ordered(const Function& fn) {
    std::vector<ValueId> early;
    for (const ir::Result& r : fn.results)
        if (!is_carried(r.role)) early.push_back(r.value);
    const auto first = ir::needed_for(fn, early);
    const auto rank = [&](ValueId v) {
        return fn.op(v).code == Opcode::Param ? 0 : first[static_cast<std::size_t>(v)] ? 1 : 2;
    };
    std::vector<ValueId> order;
    for (ValueId v = 0; v < fn.size(); ++v) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) { return rank(a) < rank(b); });
    return ir::permuted(fn, order);
}

bool costly(Opcode code) { return !ir::cost(code).again; }

}  // namespace forge::tile
