// What chunks add to a carried state is made apart and added in fp32, which rounds: matrix units cut off what they add,
// and after thousands of chunks that counts more than the bits of float32 operands.
#include <algorithm>

#include "graph/passes.h"
#include "ir/rebuild.h"

namespace forge::graph {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

namespace {

/// Whether a value is a state, or what decays, adds to or scales one.
std::vector<bool> continues_state(const Function& fn) {
    std::vector<bool> continues;
    for (const Op& op : fn.ops) {
        const auto does = [&](ValueId a) { return continues[static_cast<std::size_t>(a)]; };
        if (op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub) continues.push_back(does(op.args[2]));
        else if (ir::is_elementwise(op.code))
            continues.push_back(std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) {
                return does(a) && fn.op(a).type.shape == op.type.shape;
            }));
        else continues.push_back(op.code == Opcode::Param && op.attrs.role == Role::State);
    }
    return continues;
}

}  // namespace

Function sum_apart(const Function& fn) {
    const std::vector<bool> continues = continues_state(fn);
    std::size_t index = 0;
    return ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        const bool onto_state = continues[index++] && (op.code == Opcode::MatmulAdd || op.code == Opcode::MatmulSub);
        if (!onto_state) return ir::keep(out, op, std::move(args));
        const ValueId product = ir::emit(out, Opcode::Matmul, {args[0], args[1]}, op.attrs, op.where);
        const Opcode sum = op.code == Opcode::MatmulAdd ? Opcode::Add : Opcode::Sub;
        return ir::emit(out, sum, {args[2], product}, {}, op.where, op.name);
    });
}

}  // namespace forge::graph
