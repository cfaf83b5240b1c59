// x@s + p@u: the product that must wait longest for its operands is accumulated onto the other, which can run
// meanwhile.
#include <algorithm>

#include "graph/passes.h"
#include "ir/rebuild.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

Function deepest_last(const Function& fn) {
    const auto users = ir::users_of(fn);
    const auto results = ir::result_uses(fn);
    std::vector<int> depth;  // products on the longest way to a value
    for (const Op& op : fn.ops) {
        int most = 0;
        for (const ValueId a : op.args) most = std::max(most, depth[static_cast<std::size_t>(a)]);
        depth.push_back(most + (ir::is_matmul(op.code) ? 1 : 0));
    }
    const auto depth_of = [&](const Op& product) {
        return std::max(depth[static_cast<std::size_t>(product.args[0])],
                        depth[static_cast<std::size_t>(product.args[1])]);
    };
    std::size_t index = 0;
    return dce(ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        const Op& before = fn.ops[index++];
        if (op.code != Opcode::MatmulAdd) return ir::keep(out, op, std::move(args));
        const ValueId addend = before.args[2];
        const Op& inner = fn.op(addend);
        const auto uses = users[static_cast<std::size_t>(addend)].size() +
                          static_cast<std::size_t>(results[static_cast<std::size_t>(addend)]);
        const bool swap = inner.code == Opcode::Matmul && inner.attrs.tri != ir::Tri::OutLower && uses == 1 &&
                          depth_of(inner) > depth_of(before);
        if (!swap) return ir::keep(out, op, std::move(args));
        Op first = op, last = op;
        first.code = Opcode::Matmul;
        const Op product = out.op(args[2]);
        last.attrs = product.attrs;
        return ir::keep(out, last, {product.args[0], product.args[1], ir::keep(out, first, {args[0], args[1]})});
    }));
}

}  // namespace forge::graph
