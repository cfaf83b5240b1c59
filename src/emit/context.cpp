#include "emit/context.h"

#include <algorithm>

namespace forge::emit {

ir::ValueId Context::carried_param(const ir::Result& r) const {
    for (ir::ValueId v = 0; v < fn.size(); ++v)
        if (is_param(v, r.role) && fn.op(v).attrs.name == r.name) return v;
    return ir::kNoValue;
}

bool Context::needs_float(ir::ValueId v) const {
    const auto& inputs = plan.definition.inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [](const ir::InputDecl& in) { return in.type.dtype == BF16; }))
        return true;
    std::vector<ir::ValueId> inverted;
    for (ir::ValueId i = 0; i < fn.size(); ++i)
        if (fn.op(i).code == ir::Opcode::Inverse) inverted.push_back(i);
    return ir::needed_for(fn, inverted)[static_cast<std::size_t>(v)];
}

}  // namespace forge::emit
