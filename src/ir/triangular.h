/// What the form of a value says about its triangles: a proof by structure, not by numbers. Used to admit `inverse`, to
/// skip structural zeros in products, and to recognise masks.
#pragma once

#include "ir/function.h"

namespace forge::ir {

enum class Triangle : std::uint8_t { Full, Lower, StrictLower, UnitLower };

/// The strongest form that can be proved for a matrix value.
Triangle triangle_of(const Function& fn, ValueId id);

}  // namespace forge::ir
