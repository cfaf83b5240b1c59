/// A whole variant as data: its inputs, states and outputs and its phases as IR functions. This is what the front ends
/// make, what the text form prints and parses, and what the compiler takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "forge/error.h"
#include "ir/function.h"

namespace forge::ir {

inline const std::string kTokenSymbol = "T";
inline const std::string kChunkSymbol = "C";
inline constexpr int kMostAxes = 4;  ///< of a tensor, beside sequences, tokens and heads
inline const std::string kTokenMaskName = "token_mask";

/// An input tensor. Token inputs are [T, heads, …] (T may carry a factor: n rows per token), head inputs [heads, …],
/// scalars have no dimensions.
struct InputDecl {
    std::string name;
    Role role = Role::Input;  ///< Input, Head or Scalar
    Type type;
    double pad = 0;  ///< what rows past the end of a sequence read as
    Location where;
    std::optional<Range> range = {};  ///< what checks draw from
};

struct StateDecl {
    std::string name;
    Type type;  ///< without the head axis
    Location where;
    bool inner = false;  ///< of no call: it begins with zeros, and nobody reads how it ends
};

struct OutputDecl {
    std::string name;
    Type type;  ///< [T, heads, …]
    Location where;
};

struct Definition {
    std::string name;
    std::vector<InputDecl> inputs;
    std::vector<StateDecl> states;
    std::vector<OutputDecl> outputs;
    Function chunk, decay, merge;
    std::optional<Function> step;
    Location where;
    bool derived = false;          ///< its phases follow from its step (graph/derive.h)
    std::int64_t fixed_chunk = 0;  ///< tokens per chunk, where results depend on it; 0: any will do; 1: is_sequential

    [[nodiscard]] const InputDecl* input(const std::string& name) const;
    [[nodiscard]] const StateDecl* state(const std::string& name) const;
    [[nodiscard]] const OutputDecl* output(const std::string& name) const;
};

/// Whether it has no phases: they are to be derived from `step` (graph/derive.h) before anything else is made of it.
bool is_step_alone(const Definition& def);

/// Whether it runs token by token: a `step` alone, from which nothing is derived, on chunks of one token.
bool is_sequential(const Definition& def);

/// The sizes of chunks that kernels are made for.
bool is_chunk_size(std::int64_t tokens);

/// What `prev_token` reads before a call's first token: the last rows of an input in the call before. It is carried
/// like a state, though it is no value of the program: a call takes it, and gives back its own last token's rows.
struct LastRows {
    std::string name;  ///< last_<input>
    std::string input;
    Type type;  ///< f32, without the head axis; [n, …] of an input with n rows per token
    Dim heads;  ///< the input's own
};
/// One for every input that a phase or `step` reads with prev_token, in the order of declaration.
std::vector<LastRows> last_rows(const Definition& def);
/// Declarations that have the name of one of them.
std::vector<Diagnostic> last_rows_conflicts(const Definition& def);

/// The name under which phases see a state before the chunk ("prev_s") and the chunk's contribution ("chunk_state" when
/// there is a single state, else "chunk_<name>").
std::string prev_name(const Definition& def, const StateDecl& state);
std::string chunk_name(const Definition& def, const StateDecl& state);

/// What a phase or the ChunkProgram sees of an input: token inputs lose the head axis and T becomes C (`step`:
/// vanishes).
Type phase_type(const InputDecl& input);
Type step_type(const InputDecl& input);
Type phase_type(const OutputDecl& output);

}  // namespace forge::ir
