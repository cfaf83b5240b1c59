/// A mask's function, as it is of tokens far from one another, as the sum of terms that a recurrence can be written of.
#pragma once

#include "frontend/mask.h"

namespace forge::frontend {

struct MaskTerms {
    std::vector<MaskTerm> terms;
    bool read_places = false;  ///< more than how far apart two tokens are
};

/// CompileError where it is no such sum, with the operation that is not.
MaskTerms mask_terms(const ir::Function& far, const std::vector<ir::InputDecl>& inputs);

/// CompileError at an operation, with what masks may be.
[[noreturn]] void refuse_mask(const ir::Op& op, const std::string& what, const std::string& hint);

}  // namespace forge::frontend
