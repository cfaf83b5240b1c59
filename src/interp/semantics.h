/// What the type rules cannot see, checked by running a definition in float64 at small sizes on seeded random inputs:
/// no output may depend on a later token, and padding may change neither outputs nor states. Takes a few milliseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "forge/error.h"
#include "graph/input_values.h"
#include "interp/recurrence.h"

namespace forge::interp {

/// The mistakes found, in the user's terms; empty if there are none, or if the numbers do not stay finite for any of
/// the ranges tried (nothing can be said then).
std::vector<Diagnostic> check_semantics(const ir::Definition& def);

/// Whether chunks of one token give the same results as longer ones: by the optimised program of the definition on
/// random numbers, if they are finite. Of summaries, which have no outputs, nothing is known.
bool goes_by_token(const ir::Definition& def, const ir::Function& program);
bool goes_by_token(const ir::Definition& def);  ///< of its phases as they are written

/// Small, distinct sizes for every symbol of the definition, and `chunk` for "C".
Sizes small_sizes(const ir::Definition& def, std::int64_t chunk);

/// What to draw for each input: graph::input_values, and where the definition is not finite on these, other guesses for
/// inputs of which nothing is known.
std::map<std::string, graph::InputValues> admitted_values(const ir::Definition& def);

/// Whether the definition gives finite numbers when all of its gates per token are `x` <= 0 (and gates per head, if x
/// is finite): as the compiler transforms it, and by its `step`. Declared ranges admit what they contain.
bool admits_gates(const ir::Definition& def, double x);

/// Random arguments: gates are in (-0.9, -0.1), for which naive forms of chunks are accurate.
Sequence random_sequence(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, std::uint64_t seed);
/// The same with every input in f32 uniform in `range`, whatever it is.
Sequence random_sequence(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, std::uint64_t seed,
                         Range range);

/// max |a - b| / max(|a|, 1) over all elements; infinite where shapes differ or either is not finite.
double relative_difference(const Value& a, const Value& b);

}  // namespace forge::interp
