/// What the type rules of single ops cannot see: whether a definition hangs together. Parameters are declared and have
/// their declared types, cached values were cached, every state and output is made. Front ends report their own
/// mistakes in the user's terms; this guards definitions that come as text.
#pragma once

#include <vector>

#include "forge/error.h"
#include "ir/definition.h"

namespace forge::ir {

/// Every mistake found, in order; empty if there is none.
std::vector<Diagnostic> verify(const Definition& def);

}  // namespace forge::ir
