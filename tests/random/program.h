/// A random program: a definition, the sizes it is compiled for, and what its inputs hold. Everything follows from the
/// decisions.
#pragma once

#include "check/problem.h"
#include "ir/definition.h"
#include "tests/random/parts.h"

namespace forge::fuzz {

struct Program {
    ir::Definition def;
    std::map<std::string, std::int64_t> sizes;
    std::map<std::string, Kind> kinds;  ///< of inputs and of initial states
    std::set<std::string> traits;
    DType dtype = F32;  ///< to compile for

    [[nodiscard]] bool has(const std::string& trait) const { return traits.contains(trait); }
};

/// Throws CompileError if the language refuses what the decisions say.
Program make_program(Decisions& decisions);

/// The shapes of calls that the program is to be right for, with lengths around so many tokens per chunk.
check::Problem make_problem(Decisions& decisions, const Program& program, const std::string& name, std::int64_t chunk);

/// Every argument of a call, with values of the program's kinds; initial states are numbers of its 16-bit type.
check::Buffers make_buffers(const Program& program, const check::Problem& problem);

}  // namespace forge::fuzz
