/// A mask as it is of tokens far from one another: what compares their distance with a number is decided there.
#pragma once

#include "ir/definition.h"

namespace forge::frontend {

struct FarMask {
    ir::Function fn;
    std::int64_t window = 0;  ///< of tokens at least so far apart
};

/// `blocks`: whether comparisons of places' blocks, floor(i / 16) == floor(j / 16), are decided as distances are.
FarMask far_mask(const ir::Function& mask, const std::vector<ir::InputDecl>& inputs, bool blocks);

}  // namespace forge::frontend
