/// The skeleton of a pass: walk a function op by op into a new one. `visit(out, op, args)` gets the op and its operands
/// already mapped, and returns the value that stands for it; returning `keep(out, op, args)` copies the op.
#pragma once

#include <utility>
#include <vector>

#include "ir/function.h"

namespace forge::ir {

inline ValueId keep(Function& out, const Op& op, std::vector<ValueId> args) {
    return out.add({op.code, op.type, std::move(args), op.attrs, op.name, op.where, op.layout});
}

template <class Visit>
Function rebuild(const Function& fn, Visit visit) {
    Function out;
    out.name = fn.name;
    out.ops.reserve(fn.ops.size());
    std::vector<ValueId> map;
    map.reserve(fn.ops.size());
    for (const Op& op : fn.ops) {
        std::vector<ValueId> args;
        args.reserve(op.args.size());
        for (const ValueId a : op.args) args.push_back(map[static_cast<std::size_t>(a)]);
        map.push_back(visit(out, op, std::move(args)));
    }
    for (const Result& r : fn.results) {
        out.results.push_back(r);
        out.results.back().value = map[static_cast<std::size_t>(r.value)];
    }
    return out;
}

/// The same ops in another order, in which operands still come first: `order[i]` is the op that becomes the i-th.
inline Function permuted(const Function& fn, const std::vector<ValueId>& order) {
    std::vector<ValueId> position(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
        position[static_cast<std::size_t>(order[i])] = static_cast<ValueId>(i);
    Function out;
    out.name = fn.name;
    out.ops.reserve(fn.ops.size());
    for (const ValueId v : order) {
        Op op = fn.op(v);
        for (ValueId& a : op.args) a = position[static_cast<std::size_t>(a)];
        out.add(std::move(op));
    }
    for (Result r : fn.results) {
        r.value = position[static_cast<std::size_t>(r.value)];
        out.results.push_back(std::move(r));
    }
    return out;
}

}  // namespace forge::ir
