#include "graph/scales.h"

namespace forge::graph {

std::optional<int> scale_axis(const ir::Type& type) {
    std::optional<int> axis = -1;
    for (int d = 0; d < type.rank(); ++d) {
        if (type.shape[static_cast<std::size_t>(d)] == Dim(1)) continue;
        if (axis != -1) return std::nullopt;
        axis = d + 2 - type.rank();
    }
    return axis;
}

std::optional<Scaled> scaled(const ir::Function& fn, ir::ValueId v) {
    const ir::Op& op = fn.op(v);
    if (op.code != ir::Opcode::Mul || op.type.rank() != 2) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
        const ir::Op &scale = fn.op(op.args[i]), &matrix = fn.op(op.args[1 - i]);
        if (matrix.type.dtype == DType::Bool) continue;  // which products do not take
        if (matrix.type.shape == op.type.shape && scale_axis(matrix.type) == std::nullopt)
            if (const auto axis = scale_axis(scale.type)) return Scaled{op.args[1 - i], op.args[i], *axis};
    }
    return std::nullopt;
}

}  // namespace forge::graph
