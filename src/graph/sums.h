/// Sums as lists of signed addends.
#pragma once

#include <vector>

#include "ir/function.h"

namespace forge::graph {

struct Addend {
    ir::ValueId v = ir::kNoValue;
    bool negative = false;
};

/// The addends of a tree of additions and subtractions of one type; a value that is no sum is its only addend.
std::vector<Addend> addends(const ir::Function& fn, ir::ValueId v);
/// Starts from a positive addend, so that nothing is negated if there is one.
ir::ValueId emit_sum(ir::Function& fn, const std::vector<Addend>& sum, const Location& where);

}  // namespace forge::graph
