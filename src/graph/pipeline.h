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

/// Parses a function in text form, runs the named passes and prints the result. CompileError for unknown passes.
std::string run_passes(const std::string& text, const std::vector<std::string>& passes,
                       const std::string& file = "<text>");

}  // namespace forge::graph
