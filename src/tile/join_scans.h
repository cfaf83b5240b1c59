/// A scan from nothing, plus what remains of a state, is a scan from the state:
///   linear_scan(exp(g), x) + exp(cumsum(g)) * h   becomes  linear_scan_from(exp(g), x, h)
/// and likewise its last row with exp(sum(g)). Kernels that hold both parts need no cumulated decay
/// then. It is done in kernels, not before: apart, the scan is free of the state, and other
/// strategies run it ahead.
#pragma once

#include "ir/function.h"

namespace forge::tile {

/// For matrices whose rows are scanned.
ir::Function join_scans(const ir::Function& fn);

}  // namespace forge::tile
