/// Whether an axis may be longer on chip than it is: with zeros behind its end in all that is loaded, and nothing
/// stored from there. What is computed behind the end then must not reach what lies before it, be no state of its own,
/// and never be infinite or NaN.
///
/// An interval says what a value may be behind the end. It takes for granted that no number is infinite that the
/// program itself multiplies with what the axis has: all of its results would be, too.
#pragma once

#include <optional>
#include <string>

#include "ir/function.h"

namespace forge::graph {

/// The first operation of an optimised program, with its sizes bound, for which that cannot be shown; nullopt: there is
/// none.
std::optional<ir::ValueId> spoils_padding(const ir::Function& program, const std::string& axis);

}  // namespace forge::graph
