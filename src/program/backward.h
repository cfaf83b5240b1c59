/// The backward pass of a definition, made from its forward pass (graph/gradient.h).
#pragma once

#include <set>
#include <string>

#include "ir/definition.h"
#include "ir/pass.h"

namespace forge::program {

struct Backward {
    ir::Definition interface;  ///< the tensors of a call
    ir::Function program;      ///< the forward pass of a chunk as it is differentiated
    ir::Function adjoint;      ///< of that, as it is planned
};

/// `of`: the inputs whose gradients are wanted; null: all. `to_inputs`: calls have no gradients of states, so that
/// nothing passes back through those that only keep exponents small (graph/stabilisers.h). CompileError for what has no
/// gradient, with the op and its place.
Backward backward_of(const ir::Definition& def, const ir::PassRunner& passes = {},
                     const std::set<std::string>* of = nullptr, bool to_inputs = false);

/// The specification: the adjoint of `step`, of a definition that has one.
Backward step_backward(const ir::Definition& def);

}  // namespace forge::program
