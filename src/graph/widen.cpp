#include "graph/passes.h"
#include "ir/rebuild.h"

namespace forge::graph {

ir::Function widen(const ir::Function& fn) {
    return ir::rebuild(fn, [](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) {
        if (op.code == ir::Opcode::CacheResult) return args[0];
        if (op.code == ir::Opcode::To && is_float(op.attrs.dtype) && is_float(out.op(args[0]).type.dtype))
            return args[0];
        ir::Op wide = op;
        if (is_float(wide.type.dtype)) wide.type.dtype = DType::F32;
        if (wide.code == ir::Opcode::To) wide.attrs.dtype = wide.type.dtype;
        if (wide.code == ir::Opcode::MatmulOutFp32) wide.code = ir::Opcode::Matmul;
        return ir::keep(out, wide, std::move(args));
    });
}

}  // namespace forge::graph
