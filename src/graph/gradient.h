/// Reverse mode: the adjoint of a program, one rule per op, from the program alone.
///
/// The adjoint has the parameters of the program, but takes its states as they were before the chunk (Role::Before),
/// and, named by grad_name, the gradients of its results: those of outputs are token inputs, those of the states after
/// the chunk are states. It returns the gradients of the parameters: those of token inputs are outputs, those of the
/// states before the chunk are the same states' next values. So the adjoint of a chunk is itself the program of a
/// chunk, and a sequence's gradients are a run through its chunks in reverse, with states that come from the end.
///
/// What every token has a part in (inputs per head and numbers) is summed in such a state, from zero. A shifted input's
/// gradient goes to the token before; that of a chunk's first token waits in a state for the chunk before.
///
/// Decays stay sums over the tokens between two tokens: the gradient of a gate is a sum of (row sums - column sums) of
/// P * dP over the tokens from its own on, and no quotient of decays is formed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/definition.h"
#include "ir/function.h"

namespace forge::graph {

/// grad_q for q.
std::string grad_name(const std::string& name);

enum class Unit : std::uint8_t { Chunk, Token };

/// The adjoint of `program`: the ChunkProgram of a definition (Unit::Chunk), or its `step`. CompileError for what has
/// no gradient, with the op and its place; for programs in which l2norm and softmax are decomposed, and products do not
/// accumulate.
ir::Function gradient(const ir::Function& program, const ir::Definition& def, Unit unit = Unit::Chunk);

/// The adjoint with the program's own states after the chunk among the results: a whole backward pass
/// (graph/saved_states.h). Of the gradients it has those of `interface`. `constant`, if not empty: by value, whether
/// nothing passes back through it.
ir::Function gradient_with_states(const ir::Function& program, const ir::Definition& def,
                                  const ir::Definition& interface, const std::vector<bool>& constant = {});

/// The tensors of a definition's backward pass: the definition with the gradients of outputs as further inputs, those
/// of token inputs as outputs in place of its own, and as further states those of states, of last rows, of inputs per
/// head and of numbers, from zero. All are per head of the outputs: what groups of heads share has its gradient's
/// terms, one per head, for the caller to sum. CompileError if a name is taken.
///
/// `of`: the inputs whose gradients are wanted; null: all. Those of states come in any case, as they are carried.
ir::Definition gradient_interface(const ir::Definition& def, const std::set<std::string>* of = nullptr);

/// The definition that an interface without others' gradients is of: with its own outputs.
ir::Definition without_gradients(const ir::Definition& interface);

}  // namespace forge::graph
