/// From the recurrence of one token to the three phases over a chunk: `step` alone is a definition.
///
///     step, one token     one SSA function; states are parameters (before) and results (after)
///        |  TokenRows     what reads no state, for all tokens of a chunk at once: [K] becomes [C, K]
///        |  StateForms    what reads a state that is being derived, as S' = D ∘ S + Σ a uᵀ, u affine in reads Sᵀ b
///        |  ChunkStates   the forms over a chunk: decays as sums of logarithms, u by a unit lower-triangular system
///        v  phases        the ChunkProgram of all this, cut into chunk, decay and merge
///     Definition          with phases as they would have been written by hand; `step` stays, as the specification
///
/// States are taken in the order in which they need one another: of one that is derived, every token's value (vectors,
/// numbers) or what tokens read of it (matrices) is a plain value for those that follow. docs/internals.md has the
/// algebra.
#pragma once

#include "ir/definition.h"

namespace forge::graph {

/// The definition with phases derived from its `step`, whatever phases it had. CompileError with the operation and its
/// place for what is not affine in the states, or has no form over a chunk.
ir::Definition derive(const ir::Definition& def);

/// `derive` where the definition is a `step` alone that is not to run token by token; others as they are.
ir::Definition with_phases(ir::Definition def);

}  // namespace forge::graph
