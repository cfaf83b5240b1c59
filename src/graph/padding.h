/// Whether an axis may be longer on chip than it is: with zeros behind its end in all that is loaded, and nothing
/// stored from there. What is computed behind the end then must not reach what lies before it, and be no state of its
/// own; what may be infinite or NaN there is neither summed nor multiplied along the axis, by zeros either.
///
/// An interval says what a value may be behind the end. It takes for granted that no number is infinite that the
/// program itself multiplies with what the axis has: all of its results would be, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/function.h"

namespace forge::graph {

/// An operation for which that cannot be shown, or, if there is none, a result; that many come after it.
struct Spoilt {
    ir::ValueId value = ir::kNoValue;
    std::int64_t left = 0;
};
/// The first of an optimised program, with its sizes bound, and an axis of `size` numbers; nullopt: there is none.
std::optional<Spoilt> spoils_padding(const ir::Function& program, const std::string& axis, std::int64_t size);

/// The program with values that spoil the padding replaced, behind the end, by numbers that do not: zeros behind a
/// feature map that makes others of them, or what no maximum is. Of several ways that with the fewest numbers to
/// replace. nullopt: none is found.
std::optional<ir::Function> with_masked_ends(const ir::Function& program, const std::string& axis, std::int64_t size);

}  // namespace forge::graph
