/// A kernel whose warp groups have roles (tile/roles.h): a branch for each role, and the barriers by which they hand
/// buffers over.
#pragma once

#include "emit/cuda/fragment_inputs.h"

namespace forge::emit {

/// All that follows the declaration of rows.
void write_fragment_roles(Context& context, Transfers& transfers, FragmentInputs& inputs);

}  // namespace forge::emit
