/// Programs with channels beyond those of the zoo: states that are numbers, so that heads are channels; maxima;
/// channels that meet; several rows of output; no `step`.
#pragma once

#include <string>

#include "ir/definition.h"

namespace forge::tests {

/// Mamba: S = e^(Δ A) ⊙ S + b (Δ x)ᵀ, o = (Sᵀ c + d x) silu(z), Δ = softplus(δ): every number of a matrix decays by
/// itself.
ir::Definition selective();

/// Two such states with 3 rows, an axis that is a number, gates of all numbers, and a number per token and row beside.
ir::Definition three_rows();

/// m = max(m + g, x), n = e^(g σ(λ)) n + x', o = n + e^(x - m), with numbers per head and x' the token before; by its
/// step alone.
ir::Definition numbers();

/// n = e^g n + x, a number per head.
ir::Definition counts();

/// h = e^g h + e^(x - max x), o = h / |h|, twice. No step.
ir::Definition norms();

/// h = e^g h + σ(λ) x + b, o = h, and a number per token, p = |h|^2: λ and b are numbers per head and per call.
ir::Definition lengths();

/// h = e^g h + x, o = h Σ w + u: w and u have channels per head, of which w's gradient is one number for all.
ir::Definition gains();

/// h = e^g h + x, o = h, and beside it a number per token that channels have no part in, p = e^g.
ir::Definition beside();

/// h = h + max(x, g), o = h: a sum of maxima, and no running maximum.
ir::Definition clamped();

/// h = max(h + g, x), o = h - x, token by token: no phases.
ir::Definition sequential();

/// h = max(h + g, x), w = w + x, o = w (y · x).
ir::Definition maxima();

}  // namespace forge::tests
