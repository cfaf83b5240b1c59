/// A ChunkProgram cut into the phases of a definition.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/definition.h"

namespace forge::graph {

/// A state after the chunk, and the part of it that the chunk contributes, if it has one: a value of the same function
/// that `next` is made of.
struct Derived {
    ir::ValueId next = ir::kNoValue, contribution = ir::kNoValue;
};

/// Sets chunk, decay and merge of `def`: what contributions need, then what states need, then what outputs need. What a
/// later phase reads of an earlier one is cached. `states`: in the order of declaration.
void cut_into_phases(const ir::Function& program, const std::vector<Derived>& states,
                     const std::vector<std::pair<std::string, ir::ValueId>>& outputs, ir::Definition& def);

}  // namespace forge::graph
