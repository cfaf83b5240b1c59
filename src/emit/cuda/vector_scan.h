/// Scans element by element (tile/vector_scan.h): threads ask for what several chunks read, and then go through these.
#pragma once

#include "emit/context.h"
#include "emit/transfers.h"

namespace forge::emit {

/// The body of such a kernel, whose task and parameters are declared.
void write_vector_scan(Context& context, Transfers& transfers);

}  // namespace forge::emit
