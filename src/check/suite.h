/// The awkward problems that every variant, strategy and element type must get right: lengths that are no multiple of a
/// chunk, shorter than one, or zero; sequences packed together; K != V and not powers of two; grouped heads; strides;
/// keys that nearly coincide; gates from 0 to -inf. `forge check` and the numerics tests both take them from here.
#pragma once

#include <string>
#include <vector>

#include "check/problem.h"

namespace forge::check {

struct Case {
    std::string name;
    Problem problem;
};

/// All cases that the definition admits, at the given sizes (K, V, …).
std::vector<Case> awkward_cases(const ir::Definition& def, DType dtype,
                                const std::map<std::string, std::int64_t>& sizes, std::uint64_t seed);

}  // namespace forge::check
