/// The skeleton of a pass: walk a function op by op into a new one. `visit(out, op, args)` gets the op and its operands
/// already mapped, and returns the value that stands for it; returning `keep(out, op, args)` copies the op.
#pragma once

#include <utility>
#include <vector>

#include "ir/function.h"

namespace forge::ir {

inline ValueId keep(Function& out, const Op& op, std::vector<ValueId> args) {
    Op copy = op;
    copy.args = std::move(args);
    return out.add(std::move(copy));
}

template <class Visit>
Function rebuild(const Function& fn, Visit visit) {
    Function out;
    out.name = fn.name;
    std::vector<ValueId> map;
    map.reserve(fn.ops.size());
    for (const Op& op : fn.ops) {
        std::vector<ValueId> args;
        args.reserve(op.args.size());
        for (const ValueId a : op.args) args.push_back(map[static_cast<std::size_t>(a)]);
        map.push_back(visit(out, op, std::move(args)));
    }
    for (const Result& r : fn.results) out.results.push_back({r.name, r.role, map[static_cast<std::size_t>(r.value)]});
    return out;
}

}  // namespace forge::ir
