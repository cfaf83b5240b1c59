#include "emit/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "forge/error.h"

namespace forge::emit {
namespace {

using ir::Linear;

/// The C++ operator that the op is; nullptr if it is none.
const char* operator_of(const ir::Op& op) {
    switch (ir::linear(op.code)) {
        case Linear::Sum:
            return "+";
        case Linear::Difference:
        case Linear::Negated:
            return "-";
        case Linear::Product:
            return "*";
        case Linear::Quotient:
            return "/";
        case Linear::Opaque:
        case Linear::Same:
        case Linear::Rearranged:
        case Linear::Selected:
        case Linear::Joined:
        case Linear::Summed:
        case Linear::Masked:
        case Linear::Second:
        case Linear::Contraction:
        case Linear::Weighted:
        case Linear::Accumulated:
        case Linear::Subtracted:
            return nullptr;
    }
    return nullptr;
}

}  // namespace

std::string expression(const ir::Function& fn, const ir::Op& op, const std::vector<std::string>& a,
                       const std::string& zero, Spelling spelling) {
    if (ir::is_same(op.code)) {
        const bool from = fn.op(op.args[0]).type.dtype == DType::Bool, to = op.type.dtype == DType::Bool;
        if (from == to) return a[0];
        return to ? fmt::format("ne({}, {})", a[0], zero) : fmt::format("mask_to_float({})", a[0]);
    }
    if (!ir::is_elementwise(op.code))
        throw InternalError(fmt::format("emit: {} in a loop over elements", ir::info(op.code).name));
    const char* const sign = spelling == Spelling::Operators ? operator_of(op) : nullptr;
    if (!sign) return fmt::format("{}({})", ir::info(op.code).name, fmt::join(a, ", "));
    return a.size() == 1 ? fmt::format("{}{}", sign, a[0]) : fmt::format("{} {} {}", a[0], sign, a[1]);
}

}  // namespace forge::emit
