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

std::optional<OuterProduct> outer_product(const ir::Function& fn, ir::ValueId v) {
    const ir::Op& op = fn.op(v);
    if (op.code != ir::Opcode::Mul || op.type.rank() != 2) return std::nullopt;
    for (const std::size_t i : {0, 1}) {
        const ir::Type &column = fn.op(op.args[i]).type, &vector = fn.op(op.args[1 - i]).type;
        if (column.rank() == 2 && column.shape[0] == op.type.shape[0] && column.shape[1] == Dim(1) &&
            vector.rank() == 1)
            return OuterProduct{op.args[i], op.args[1 - i], i == 0};
    }
    return std::nullopt;
}

}  // namespace forge::graph
