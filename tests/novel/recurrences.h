/// Recurrences of the literature that are no variants, each as `step` alone: what is derived from it must do.
#pragma once

#include "variants/variants.h"

namespace forge::novel {

const std::vector<variants::Entry>& recurrences();

}  // namespace forge::novel
