/// Runs one head of a definition over a whole sequence, in float64, in three ways: token by token (the specification),
/// chunk by chunk through the phases as written, and chunk by chunk through the joined ChunkProgram. Their agreement is
/// what `forge check`, the tests and the passes' properties rest on.
#pragma once

#include "interp/interp.h"
#include "ir/definition.h"

namespace forge::interp {

/// The arguments of one head. Token inputs are [factor * tokens, …], head inputs […], scalars [].
struct Sequence {
    std::int64_t tokens = 0;
    Bindings inputs;
    Bindings initial_states;  ///< an absent state is zero, absent last rows (ir::last_rows) are the input's pad
};

/// Outputs [tokens, …] and the states after the last token, ir::last_rows included.
struct Outcome {
    Bindings outputs;
    Bindings states;
    /// Of gradients that are sums over all tokens: the squares of what every token (or chunk) added, summed.
    Bindings squares = {};
};

/// `sizes` gives the symbols of the shapes; "C" is the chunk size (`run_steps` does not need it). The last chunk may be
/// ragged: rows past the end are each input's `pad`, `token_mask` is 0 there, and their outputs are dropped. What runs
/// token by token has no phases: its steps are taken.
Outcome run_steps(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes);
Outcome run_phases(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes);
Outcome run_program(const ir::Function& program, const ir::Definition& def, const Sequence& sequence,
                    const Sizes& sizes, const Touch& touch = {});

/// What a function may ask for at the chunk that starts at token `first`: rows of inputs and those before them, the
/// mask, what is the same for all tokens, and the initial states.
Bindings chunk_bindings(const ir::Definition& def, const Sequence& sequence, const Sizes& sizes, std::int64_t first);

/// A definition's backward pass as graph/gradient makes it.
struct Backward {
    const ir::Definition& definition;    ///< what is differentiated
    const ir::Definition& interface;     ///< the tensors of its gradients
    const ir::Function& program;         ///< `step` of the definition, or the program of a chunk
    const ir::Function& adjoint;         ///< of that
    std::vector<std::string> sums = {};  ///< gradients of which Outcome::squares are asked for
};

/// The gradients of one head, from the inputs and initial states of the backward pass; absent states are zero. The
/// definition's own states are those after the last token. Token by token, and chunk by chunk; states before each are
/// made by a run forwards.
Outcome run_step_gradient(const Backward& backward, const Sequence& sequence, const Sizes& sizes);
Outcome run_program_gradient(const Backward& backward, const Sequence& sequence, const Sizes& sizes,
                             const Touch& touch = {});

}  // namespace forge::interp
