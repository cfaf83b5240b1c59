/// What the type rules cannot see, checked by running a definition in float64 at small sizes on seeded random inputs:
/// no output may depend on a later token, and padding may change neither outputs nor states. Takes a few milliseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "forge/error.h"
#include "interp/recurrence.h"

namespace forge::interp {

/// The mistakes found, in the user's terms; empty if there are none, or if the numbers do not stay finite for any of
/// the ranges tried (nothing can be said then).
std::vector<Diagnostic> check_semantics(const ir::Definition& def);

/// Small, distinct sizes for every symbol of the definition, and `chunk` for "C".
Sizes small_sizes(const ir::Definition& def, std::int64_t chunk);

/// Random arguments. Half-type inputs and states are normal * 0.5. Inputs in f32 may be gates of any convention: they
/// are uniform in `range`, (-0.9, -0.1) for log gates.
struct Range {
    double low = -0.9, high = -0.1;
};
Sequence random_sequence(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, std::uint64_t seed,
                         Range range = {});

/// max |a - b| / max(|a|, 1) over all elements; infinite where shapes differ or either is not finite.
double relative_difference(const Value& a, const Value& b);

}  // namespace forge::interp
