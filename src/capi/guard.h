/// The border between C++ and C (rt/border.h), and texts that C's callers free.
#pragma once

#include "forge_c.h"
#include "rt/border.h"

namespace forge::capi {

using rt::guarded;
using rt::InvalidArgument;
using rt::known_part;
using rt::required;

/// A copy that forge_free frees.
char* new_text(const std::string& text);

}  // namespace forge::capi
