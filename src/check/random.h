/// The generator of src/support under the checks' own name.
#pragma once

#include "support/random.h"

namespace forge::check {

using support::mix;
using support::Random;

}  // namespace forge::check
