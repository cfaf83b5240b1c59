/// What the type rules of single ops cannot see: whether a definition hangs together. Parameters are declared and have
/// their declared types, cached values were cached, every state and output is made. Front ends report their own
/// mistakes in the user's terms; this guards definitions that come as text.
#pragma once

#include <vector>

#include "forge/error.h"
#include "ir/definition.h"

namespace forge::ir {

/// Inputs, states and outputs that are called like another one of them or like the mask of tokens, or have an axis that
/// is no size.
std::vector<Diagnostic> declaration_faults(const Definition& def);

/// Those, and what would not survive in emitted code: names of definitions, tensors, states, cached values and sizes
/// that are no identifiers, and constants beyond float32's range. Every mistake found; front ends look at these, too.
std::vector<Diagnostic> check_names_and_constants(const Definition& def);

/// Every mistake found, those of names and constants included, in order; empty if there is none.
std::vector<Diagnostic> verify(const Definition& def);

}  // namespace forge::ir
