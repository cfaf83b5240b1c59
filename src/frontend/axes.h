/// What decides is which axes a program ties to each other, not their names: a state ["D", "D"] or [128, 128]
/// has as many independent axes as one of ["K", "V"].
#pragma once

#include <map>

#include "ir/definition.h"

namespace forge::frontend {

/// The definition with a symbol of its own for every axis of a value that no operation ties to another one of the same
/// name beside it; also for axes of a state that are numbers. A first axis keeps its name, others have it with primes,
/// which printing leaves out.
ir::Definition with_own_axes(const ir::Definition& def);

/// Sizes for such a definition, from those that its user gave.
std::map<std::string, std::int64_t> own_sizes(const ir::Definition& def, std::map<std::string, std::int64_t> sizes);

}  // namespace forge::frontend
