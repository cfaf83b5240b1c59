/// The words and tables of a choice. Text only; nothing is decided here.
#pragma once

#include "target/choose.h"

namespace forge::target {

/// Why the first candidate was taken, against the best one of each other strategy; `asked`: what the caller fixed.
std::string reason_of(const Choice& choice, const std::string& asked);

}  // namespace forge::target
