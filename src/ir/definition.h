/// A whole variant as data: its inputs, states and outputs and its phases as IR functions. This is what the front ends
/// make, what the text form prints and parses, and what the compiler takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::ir {

inline const std::string kTokenSymbol = "T";
inline const std::string kChunkSymbol = "C";
inline const std::string kTokenMaskName = "token_mask";

/// An input tensor. Token inputs are [T, heads, …] (T may carry a factor: n rows per token), head inputs [heads, …],
/// scalars have no dimensions.
struct InputDecl {
    std::string name;
    Role role = Role::Input;  ///< Input, Head or Scalar
    Type type;
    double pad = 0;  ///< what rows past the end of a sequence read as
    Location where;
};

struct StateDecl {
    std::string name;
    Type type;  ///< without the head axis
    Location where;
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

    [[nodiscard]] const InputDecl* input(const std::string& name) const;
    [[nodiscard]] const StateDecl* state(const std::string& name) const;
    [[nodiscard]] const OutputDecl* output(const std::string& name) const;
};

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
