/// What a forge_attention is: a compiled variant, its tensors in the order of the C ABI, and the texts that were asked
/// for.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capi/layouts.h"
#include "forge/runtime.h"
#include "ir/definition.h"

namespace forge::capi {

/// A place for a tensor in forge_args.
struct Slot {
    enum class Kind : std::uint8_t { Input, Head, Output, InitialState, FinalState, ChunkState } kind = Kind::Input;
    std::string name;
    ir::Type type;                  ///< as declared; states without sequences and heads
    std::optional<Dim> heads = {};  ///< of a state that holds the last rows of an input: that input's
    bool inner = false;             ///< of a state: no call has it
};

/// Inputs, outputs, initial states, final states and, if asked for, states before chunks, each in the order of
/// declaration; last rows of inputs after the states.
/// `chunk_states`: the states of which calls have those before chunks.
std::vector<Slot> slots_of(const ir::Definition& definition, const std::vector<ir::StateDecl>& chunk_states,
                           DType state_dtype);
std::vector<std::string> scalars_of(const ir::Definition& definition);

/// The JSON of forge_describe.
std::string describe(const Attention& attention, const CompileOptions& options, const std::vector<Slot>& slots,
                     const std::vector<std::string>& scalars);
/// The JSON of forge_resources.
std::string resources(const Attention& attention);
/// The JSON of forge_check.
std::string check_report(const Attention& attention, const ir::Definition& declared, const CompileOptions& options);

}  // namespace forge::capi

struct forge_attention {
    forge::Attention attention;
    forge::ir::Definition declared;  ///< as it was given, before an option replaced its 16-bit types
    forge::CompileOptions options;
    std::vector<forge::capi::Slot> slots;
    std::vector<std::string> scalars;
    std::string description;
    mutable forge::capi::Layouts layouts;  ///< of calls on a GPU
    mutable std::once_flag explained;
    mutable std::string explanation;
};
