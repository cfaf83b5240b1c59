#include "plan/wide_spills.h"

namespace forge::plan {

using ir::Op;
using ir::Opcode;

std::set<std::string> wide_spills(const std::vector<KernelGraph>& kernels, bool backwards) {
    std::set<std::string> found;
    const auto add = [&](const Op& op) {
        if (op.code == Opcode::Param && op.attrs.role == ir::Role::Spill) found.insert(op.attrs.name);
    };
    for (const KernelGraph& kernel : kernels) {
        const ir::Function& fn = kernel.fn;
        for (const Op& op : fn.ops) {
            const bool weights = op.code == Opcode::DecayApply && !kernel.own_axis.empty();
            if (weights || op.code == Opcode::LinearScan) add(fn.op(op.args[0]));
            if (op.code != Opcode::Amax || !backwards) continue;
            const auto needed = ir::needed_for(fn, {op.args[0]});
            for (std::size_t v = 0; v < needed.size(); ++v)
                if (needed[v]) add(fn.ops[v]);
        }
    }
    return found;
}

}  // namespace forge::plan
