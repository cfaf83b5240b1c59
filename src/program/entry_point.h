/// One definition yields a family of programs, which the rest of the compiler treats alike.
#pragma once

#include <string>
#include <vector>

#include "ir/definition.h"
#include "ir/pass.h"

namespace forge::program {

/// A program of the family: what is planned, scheduled, emitted and called.
struct EntryPoint {
    std::string name;        ///< forward, decode, backward, backward of some inputs, or a summary of one of these
    ir::Function joined;     ///< the work of one chunk of one head, as it was defined
    ir::Function optimised;  ///< … as it is planned
    std::int64_t chunk = 0;  ///< tokens per chunk that it is right for; 0: any that kernels are made for
    ir::Definition tensors;  ///< the tensors of its calls: the definition's, or graph::gradient_interface
};

/// Whole sequences: the three phases, chunk by chunk; of what runs token by token the step, as in decode.
EntryPoint forward(const ir::Definition& def, const ir::PassRunner& passes = {});

/// A few tokens of each of many sequences, one after the other: `step`, with a token axis. Of a definition without a
/// `step` the three phases on chunks of one token; RuntimeError if it fixes another chunk, on which they depend.
EntryPoint decode(const ir::Definition& def, const ir::PassRunner& passes = {});
inline bool has_decode(const ir::Definition& def) { return def.step || def.fixed_chunk == 0; }

/// The gradients of everything that the forward pass takes from those of everything that it makes, chunk by chunk from
/// the end (graph/gradient.h). CompileError for what has no gradient, with the op and its place.
EntryPoint backward(const ir::Definition& def, const ir::PassRunner& passes = {}, const std::string& name = "backward");

/// "backward", or "backward of q, k, g": of the gradients of inputs those that are wanted. What nobody wants is not
/// computed.
///
/// "backward from states", perhaps "of" some: the same, of which calls have the states before chunks as chunk states,
/// as the forward pass with the option chunk_states leaves them, and neither initial nor final ones of the definition's
/// own. Chunks are those of that pass.
///
/// "backward to inputs", perhaps "of" some: the same, of calls that have no gradients of states, neither given of final
/// ones nor made of initial ones, as in most training. What only keeps exponents small then has none at all
/// (graph/stabilisers.h).
bool is_backward(const std::string& entry);
bool is_from_states(const std::string& entry);
bool is_to_inputs(const std::string& entry);

/// What a rank tells of its tokens (graph::rank_summary): "summary", of the forward pass, or "summary of backward". Its
/// calls have the inputs of that program, no outputs, and transitions as further states, which start from ones or from
/// the identity. CompileError where a transition has no summary, with the op and its place. "states of summary" and
/// "transitions of summary" are the two halves of "summary": on a GPU each can have the engine that it is made for.
EntryPoint summary(const ir::Definition& def, const ir::PassRunner& passes = {}, const std::string& name = "summary");
bool is_summary(const std::string& entry);
/// The states that pass from rank to rank: the definition's, or in a backward pass their gradients and those of the
/// last rows of inputs.
std::vector<std::string> carried_states(const std::string& entry, const ir::Definition& def);

/// The tensors of an entry point's calls, with a definition's own spelling.
ir::Definition tensors_of(const std::string& entry, const ir::Definition& def);

/// RuntimeError for a name that is none of these.
EntryPoint entry_named(const std::string& name, const ir::Definition& def, const ir::PassRunner& passes = {});

}  // namespace forge::program
