/// The type rules: one function from an op and its operands' types to the result's type, or the reason why PyTorch
/// would refuse it. Used by tracing (errors collected), the parser, the verifier and every pass that creates ops.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "ir/function.h"

namespace forge::ir {

struct TypeFault {
    std::string what, expected, got, hint;
};
using Inferred = std::variant<Type, TypeFault>;

/// Of an axis, and of whatever else counts elements in a definition: kernels count them with int.
inline constexpr std::int64_t kMostExtent = std::numeric_limits<std::int32_t>::max();

/// Leaves (param, constant, identity) state their own type and are not inferred: pass it as `own`.
Inferred infer(Opcode code, std::span<const Type> operands, const Attrs& attrs, const Type& own = {});

/// Adds the op with its type inferred; a type fault is an InternalError (passes must make well-typed ops).
ValueId emit(Function& fn, Opcode code, std::vector<ValueId> args, Attrs attrs = {}, const Location& where = {},
             const std::string& name = {});
ValueId emit_constant(Function& fn, double value, const Location& where = {});

/// Whether all axes, or the factors of their symbols, are between 1 and kMostExtent.
bool has_extents(const Shape& shape);
/// PyTorch's broadcast of two shapes; nullopt if they do not broadcast.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
/// Normalises a negative axis; nullopt if out of range.
std::optional<std::int64_t> normal_axis(std::int64_t axis, std::size_t rank);

}  // namespace forge::ir
