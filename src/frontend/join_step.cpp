// `step` as a program of chunks of one token.
#include <utility>

#include "frontend/join.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::frontend {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// A type of a chunk of one token.
ir::Type of_one_token(ir::Type type) {
    for (Dim& d : type.shape)
        if (d.symbol == ir::kChunkSymbol) d = Dim(d.factor);
    return type;
}

/// A parameter of `step` that has a value per token, as the rows of a chunk of one token.
ValueId token_parameter(Function& out, const Op& op, Role role, const ir::InputDecl& input) {
    Op param = op;
    param.type = of_one_token(ir::phase_type(input));
    param.attrs.role = role;
    if (role == Role::Shifted) param.name = "prev_" + param.attrs.name;
    const ValueId rows = out.add(std::move(param));
    if (input.type.shape[0].factor > 1) return rows;  // `step` has several rows as a chunk does
    return ir::emit(out, Opcode::Squeeze, {rows}, Attrs{}, op.where);
}

/// A token's output as such rows.
ValueId as_rows(Function& out, ValueId v, const ir::OutputDecl& output) {
    if (output.type.shape[0].factor > 1) return v;
    const Op op = out.op(v);
    return ir::emit(out, Opcode::Unsqueeze, {v}, Attrs{}, op.where, op.name);
}

}  // namespace

Function join_step(const ir::Definition& def) {
    const Function& step = *def.step;
    Function out = ir::rebuild(step, [&](Function& fn, const Op& op, std::vector<ValueId> args) -> ValueId {
        const bool shifted = op.code == Opcode::PrevToken;
        const Op& param = shifted ? step.op(op.args[0]) : op;
        if (shifted || (op.code == Opcode::Param && op.attrs.role == Role::Input))
            return token_parameter(fn, param, shifted ? Role::Shifted : Role::Input, *def.input(param.attrs.name));
        if (op.code == Opcode::Param && op.attrs.role == Role::Mask)
            return ir::emit_constant(fn, 1, op.where);  // a chunk of one token has no padding
        return ir::keep(fn, op, std::move(args));
    });
    out.name = def.name;
    const std::vector<ir::Result> results = std::exchange(out.results, {});
    for (const Role role : {Role::Input, Role::State})  // outputs first, as in the joined phases
        for (ir::Result r : results) {
            if (r.role != role) continue;
            const ir::OutputDecl* output = role == Role::Input ? def.output(r.name) : nullptr;
            if (role == Role::Input && !output) continue;  // of an interface of gradients, which it does not make
            if (output) r.value = as_rows(out, r.value, *output);
            out.results.push_back(std::move(r));
        }
    return out;
}

}  // namespace forge::frontend
