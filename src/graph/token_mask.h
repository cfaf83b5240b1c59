/// The mask of a chunk's tokens, for passes that need it: 1 for those that are there, 0 behind the sequence's end.
#pragma once

#include "ir/definition.h"
#include "ir/function.h"

namespace forge::graph {

/// The function's token mask, or one of its own.
inline ir::ValueId token_mask_of(ir::Function& fn) {
    for (ir::ValueId v = 0; v < fn.size(); ++v)
        if (fn.op(v).code == ir::Opcode::Param && fn.op(v).attrs.role == ir::Role::Mask) return v;
    ir::Op mask{ir::Opcode::Param, {DType::F32, {Dim(ir::kChunkSymbol)}}, {}, {}, ir::kTokenMaskName, {}, std::nullopt};
    mask.attrs.name = ir::kTokenMaskName, mask.attrs.role = ir::Role::Mask;
    return fn.add(std::move(mask));
}

}  // namespace forge::graph
