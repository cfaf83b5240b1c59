#include "ir/triangular.h"

#include "ir/known.h"

namespace forge::ir {
namespace {

using enum Triangle;

bool lower(Triangle t) { return t != Full; }

Triangle of_sum(Triangle a, Triangle b) {
    if (a == StrictLower && b == StrictLower) return StrictLower;
    if ((a == UnitLower && b == StrictLower) || (a == StrictLower && b == UnitLower)) return UnitLower;
    return lower(a) && lower(b) ? Lower : Full;
}

Triangle of_difference(Triangle a, Triangle b) {
    if (a == UnitLower && b == StrictLower) return UnitLower;
    if (a == StrictLower && b == StrictLower) return StrictLower;
    return lower(a) && lower(b) ? Lower : Full;
}

Triangle of_product(Triangle a, Triangle b) {  // elementwise
    if (a == StrictLower || b == StrictLower) return StrictLower;
    if (a == UnitLower && b == UnitLower) return UnitLower;
    return lower(a) || lower(b) ? Lower : Full;
}

Triangle of_tril(Triangle x, std::int64_t diagonal) {
    if (diagonal < 0) return StrictLower;
    return diagonal == 0 && x == Full ? Lower : x;
}

Triangle triangle(const Function& fn, ValueId id, Known<Triangle>& known);

Triangle triangle_of_op(const Function& fn, const Op& op, Known<Triangle>& known) {
    if (op.type.rank() != 2) return Full;
    // An operand that is broadcast fills what its own triangle left empty.
    const auto arg = [&](std::size_t i) {
        return fn.op(op.args[i]).type.shape == op.type.shape ? triangle(fn, op.args[i], known) : Full;
    };
    if (op.code == Opcode::Identity) return UnitLower;
    if (op.code == Opcode::Tril) return of_tril(arg(0), op.attrs.diagonal);
    if (op.code == Opcode::Inverse) return arg(0) == UnitLower ? UnitLower : Full;
    if (along(op.code) == Along::Pairs) return op.attrs.exclusive ? StrictLower : Lower;
    switch (linear(op.code)) {
        case Linear::Same:
            return arg(0);
        case Linear::Negated:
        case Linear::Quotient:
            return arg(0) == UnitLower ? Lower : arg(0);
        case Linear::Sum:
            return of_sum(arg(0), arg(1));
        case Linear::Difference:
            return of_difference(arg(0), arg(1));
        case Linear::Product:
            return of_product(arg(0), arg(1));
        case Linear::Opaque:
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
            return Full;  // NOLINT: none of these proves anything
    }
    return Full;
}

Triangle triangle(const Function& fn, ValueId id, Known<Triangle>& known) {
    return known.at(id, [&] { return triangle_of_op(fn, fn.op(id), known); });
}

}  // namespace

Triangle triangle_of(const Function& fn, ValueId id) {
    Known<Triangle> known;
    return triangle(fn, id, known);
}

}  // namespace forge::ir
