// Behind a sequence's end matrix units' kernels find zeros in matrices: x padded by p is x + (1 - token_mask) p, where
// p is a number that the mask can hide.
#include <cmath>

#include "graph/passes.h"
#include "graph/token_mask.h"
#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

using ir::Attrs;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

/// What is added to the rows of a matrix: 0, and the padding behind the end.
ValueId addend(Function& fn, const Op& x, double pad) {
    const auto emit = [&](Opcode code, std::vector<ValueId> args, Attrs attrs = {}) {
        return ir::emit(fn, code, std::move(args), std::move(attrs), x.where);
    };
    const ValueId mask = token_mask_of(fn), absent = emit(Opcode::Sub, {ir::emit_constant(fn, 1, x.where), mask});
    ValueId rows = emit(Opcode::Mul, {absent, ir::emit_constant(fn, pad, x.where)});
    Attrs repeat, column;
    repeat.count = x.type.shape[0].factor, column.dim = 1;
    if (repeat.count > 1) rows = emit(Opcode::RepeatInterleave, {rows}, repeat);
    return emit(Opcode::Unsqueeze, {rows}, column);
}

}  // namespace

std::map<std::string, double> maskable_pads(const Function& fn, std::map<std::string, double> pads) {
    std::erase_if(pads, [&](const auto& entry) {
        bool matrix = false, shifted = false;
        for (const Op& op : fn.ops) {
            if (op.code != Opcode::Param || op.attrs.name != entry.first) continue;
            matrix = matrix || (op.attrs.role == Role::Input && op.type.rank() == 2);
            shifted = shifted || op.attrs.role == Role::Shifted;  // the padding comes before the first token, too
        }
        return entry.second == 0 || !std::isfinite(entry.second) || !matrix || shifted;
    });
    return pads;
}

Function mask_pads(const Function& fn, const std::map<std::string, double>& pads) {
    if (pads.empty()) return fn;
    const Function out = ir::rebuild(fn, [&](Function& to, const Op& op, std::vector<ValueId> args) {
        const ValueId x = ir::keep(to, op, std::move(args));
        const auto pad = pads.find(op.attrs.name);
        if (op.code != Opcode::Param || op.attrs.role != Role::Input || pad == pads.end()) return x;
        return ir::emit(to, Opcode::Add, {x, addend(to, op, pad->second)}, {}, op.where, op.name);
    });
    return dce(cse(out));
}

}  // namespace forge::graph
