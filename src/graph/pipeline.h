/// The graph passes of the one table (ir/passes.def), with their functions, and what applies them in its order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/pass.h"

namespace forge::graph {

struct Pass {
    ir::Pass id;
    ir::Function (*run)(const ir::Function&);
    [[nodiscard]] const char* name() const { return ir::info(id).name; }
    [[nodiscard]] const char* why() const { return ir::info(id).why; }
};

/// Every pass, by name, in the order in which a ChunkProgram goes through them.
std::span<const Pass> pipeline();

/// Runs the whole pipeline.
ir::Function optimize(ir::Function program, const ir::PassRunner& passes = {});

/// The pipeline as far as a gradient is taken: decays in a safe form and elementary operations, but no product that
/// accumulates yet.
ir::Function differentiable(ir::Function program, const ir::PassRunner& passes = {});
/// What the pipeline does with a gradient: the rest of its passes, and those before that find something to do again.
ir::Function optimize_gradient(ir::Function adjoint, const ir::PassRunner& passes = {});

/// Parses a function in text form, runs the named passes and prints the result. CompileError for unknown passes.
std::string run_passes(const std::string& text, const std::vector<std::string>& passes,
                       const std::string& file = "<text>");

}  // namespace forge::graph
