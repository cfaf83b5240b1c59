/// The order of the graph passes, in one table, and the one runner that applies it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::graph {

struct Pass {
    const char* name;
    ir::Function (*run)(const ir::Function&);
    const char* why;
};

/// Every pass, by name, in the order in which a ChunkProgram goes through them.
std::span<const Pass> pipeline();

/// Runs the whole pipeline; `after` is called with each pass and its result.
ir::Function optimize(ir::Function program, const std::function<void(const Pass&, const ir::Function&)>& after = {});

/// The pipeline as far as a gradient is taken: decays in a safe form and elementary operations, but no product that
/// accumulates yet.
ir::Function differentiable(ir::Function program);
/// What the pipeline does with a gradient: the rest of its passes, and those before that find something to do again.
ir::Function optimize_gradient(ir::Function adjoint);

/// Parses a function in text form, runs the named passes and prints the result. CompileError for unknown passes.
std::string run_passes(const std::string& text, const std::vector<std::string>& passes,
                       const std::string& file = "<text>");

}  // namespace forge::graph
