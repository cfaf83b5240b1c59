#include "tile/order.h"

#include <algorithm>

namespace forge::tile {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_carried(Role role) { return role == Role::State || role == Role::Ones || role == Role::Eye; }

Function ordered(const Function& fn) {
    std::vector<ValueId> early;
    for (const ir::Result& r : fn.results)
        if (!is_carried(r.role)) early.push_back(r.value);
    const auto first = ir::needed_for(fn, early);
    const auto rank = [&](ValueId v) { return fn.op(v).code == Opcode::Param ? 0 : first[static_cast<std::size_t>(v)] ? 1 : 2; };
    std::vector<ValueId> order;
    for (ValueId v = 0; v < fn.size(); ++v) order.push_back(v);
    std::stable_sort(order.begin(), order.end(), [&](ValueId a, ValueId b) { return rank(a) < rank(b); });
    std::vector<ValueId> position(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) position[static_cast<std::size_t>(order[i])] = static_cast<ValueId>(i);
    Function out;
    out.name = fn.name;
    for (const ValueId v : order) {
        Op op = fn.op(v);
        for (ValueId& a : op.args) a = position[static_cast<std::size_t>(a)];
        out.add(std::move(op));
    }
    for (ir::Result r : fn.results) {
        r.value = position[static_cast<std::size_t>(r.value)];
        out.results.push_back(r);
    }
    return out;
}

bool costly(Opcode code) {
    switch (code) {
        case Opcode::Add:
        case Opcode::Sub:
        case Opcode::Mul:
        case Opcode::Neg:
        case Opcode::Constant:
        case Opcode::Identity:
        case Opcode::Where:
        case Opcode::Maximum:
        case Opcode::Minimum:
        case Opcode::Tril:
        case Opcode::Triu:
        case Opcode::Relu:
        case Opcode::Abs: return false;
        default: return true;
    }
}

}  // namespace forge::tile
