/// What is legal on each level of the IR (docs/levels.md says it in full). A pass may rely on what its operand's level
/// promises and must make what its own does; between passes that is checked in debug builds and in tests.
#pragma once

#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::ir {

enum class Level : std::uint8_t {
    Program,  ///< the joined phases: one chunk of one head, in the definition's types
    Graph,    ///< … in float32 throughout
    Kernel,   ///< a kernel's part of it: spills among parameters and results
    Sized,    ///< … with numbers for symbols
    Tile,     ///< … with layouts
    Text,     ///< emitted sources
};
const char* to_string(Level level);

/// Whether operands and results are values at all: without that a function neither prints nor runs.
bool is_whole(const Function& fn);

/// What is illegal in a function of this level, one sentence each; empty if it is legal.
std::vector<std::string> faults(const Function& fn, Level level);

}  // namespace forge::ir
