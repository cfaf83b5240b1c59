#include "emit/context.h"

#include <algorithm>

namespace forge::emit {

bool Context::needs_float(ir::ValueId v) const {
    const auto& inputs = plan.definition.inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [](const ir::InputDecl& in) { return in.type.dtype == BF16; })) return true;
    std::vector<ir::ValueId> inverted;
    for (ir::ValueId i = 0; i < fn.size(); ++i)
        if (fn.op(i).code == ir::Opcode::Inverse) inverted.push_back(i);
    return ir::needed_for(fn, inverted)[static_cast<std::size_t>(v)];
}

}  // namespace forge::emit
