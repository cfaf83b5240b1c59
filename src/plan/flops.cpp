/// Operations that results need, whatever a kernel does beside them.
#include "plan/plan.h"

namespace forge::plan {
namespace {

using ir::Op;
using ir::Opcode;

double product_flops(const ir::Function& fn, const Op& op) {
    const ir::Type& a = fn.op(op.args[0]).type;
    const auto m = static_cast<double>(tile::size_of(op.type, 0)), n = static_cast<double>(tile::size_of(op.type, 1)),
               k = static_cast<double>(tile::size_of(a, op.attrs.trans_a ? 0 : 1));
    const double all = 2 * m * n * k;
    return op.attrs.tri == ir::Tri::None ? all : all / 2;
}

double flops_of(const ir::Function& fn, const Op& op) {
    if (ir::is_matmul(op.code)) return product_flops(fn, op);
    const double n = op.type.rank() == 2 ? static_cast<double>(tile::size_of(op.type, 0)) : 0;
    if (op.code == Opcode::Inverse) return n * n * n / 3;
    if (op.code == Opcode::DecayApply) return n * n * static_cast<double>(tile::size_of(op.type, 1));
    if (op.code == Opcode::DecayMatmul) return n * n * static_cast<double>(tile::size_of(fn.op(op.args[0]).type, 1));
    return 0;
}

}  // namespace

double useful_flops(const ir::Function& fn) {
    double flops = 0;
    for (const Op& op : fn.ops) flops += flops_of(fn, op);
    return flops;
}

double useful_flops(const Kernel& kernel) {
    const ir::Function& fn = kernel.tiles.fn;
    if (!kernel.tiles.roles) return useful_flops(fn);
    double flops = 0;
    for (ir::ValueId v = 0; v < fn.size(); ++v)
        flops += flops_of(fn, fn.op(v)) *
                 (kernel.tiles.roles->does(tile::Roles::kTakes, v) ? kernel.tiles.roles->tiles() : 1);
    return flops;
}

}  // namespace forge::plan
