#include "graph/passes.h"
#include "ir/infer.h"
#include "ir/rebuild.h"

namespace forge::graph {
namespace {

/// The first operand that an op promotes to the type of its result; the number of operands if it promotes none.
std::size_t first_promoted(const ir::Op& op) {
    if (op.code == ir::Opcode::Where) return 1;
    const bool promotes = ir::info(op.code).kind == ir::OpInfo::Kind::Binary || op.code == ir::Opcode::Concat ||
                          op.code == ir::Opcode::Interleave;
    return promotes ? 0 : op.args.size();
}

/// A comparison that is computed with as a number becomes one: rules that negate or scale operands need floats.
void convert_operands(ir::Function& out, const ir::Op& op, std::vector<ir::ValueId>& args) {
    if (!is_float(op.type.dtype)) return;
    ir::Attrs attrs;
    attrs.dtype = DType::F32;
    for (std::size_t i = first_promoted(op); i < args.size(); ++i)
        if (!is_float(out.op(args[i]).type.dtype)) args[i] = ir::emit(out, ir::Opcode::To, {args[i]}, attrs, op.where);
}

}  // namespace

ir::Function widen(const ir::Function& fn) {
    return ir::rebuild(fn, [](ir::Function& out, const ir::Op& op, std::vector<ir::ValueId> args) {
        if (op.code == ir::Opcode::CacheResult) return args[0];
        if (op.code == ir::Opcode::To && is_float(op.attrs.dtype) && is_float(out.op(args[0]).type.dtype))
            return args[0];
        ir::Op wide = op;
        if (is_float(wide.type.dtype)) wide.type.dtype = DType::F32;
        if (wide.code == ir::Opcode::To) wide.attrs.dtype = wide.type.dtype;
        if (wide.code == ir::Opcode::MatmulOutFp32) wide.code = ir::Opcode::Matmul;
        convert_operands(out, wide, args);
        return ir::keep(out, wide, std::move(args));
    });
}

}  // namespace forge::graph
