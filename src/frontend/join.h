/// Joins the three phases into one ChunkProgram: the work of one chunk of one head. Its parameters are the inputs
/// (roles Input, Shifted, Head, Scalar, Mask) and the states before the chunk (State); its results the states after the
/// chunk (State) and the outputs (Input). Contributions and cached values become plain edges.
#pragma once

#include "ir/definition.h"

namespace forge::frontend {

/// Of a definition that runs token by token, the next.
ir::Function join(const ir::Definition& def);
/// `step` in the form of the joined phases, for chunks of one token.
ir::Function join_step(const ir::Definition& def);

/// The definition with its 16-bit type (f16 or bf16, wherever it stands) replaced by another.
ir::Definition with_dtype(ir::Definition def, DType dtype);

}  // namespace forge::frontend
