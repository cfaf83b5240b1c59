/// Programs that nobody wrote kernels for: each bends one assumption that a compiler of linear attention might have
/// made. What holds for the variants must hold for these too.
#pragma once

#include "variants/variants.h"

namespace forge::novel {

/// Entries as in the zoo; `source` says what is unusual.
const std::vector<variants::Entry>& all();

}  // namespace forge::novel
